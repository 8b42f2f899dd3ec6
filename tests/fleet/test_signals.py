"""Real peer processes that are killed and stopped: real engines, real sockets, real signals."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio

from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.fleet.coordinator import Fleet, keep_fleet
from fleetchat.fleet.deadlines import Deadlines
from fleetchat.fleet.options import FleetOptions, embedded_peers
from fleetchat.fleet.peers import OwnPeers, started_peers
from fleetchat.fleet.speculation import open_speculation
from fleetchat.fleet.telemetry import Answer
from fleetchat.fleet.trouble import Cause
from tests.fakes.chain import Letters, request

pytestmark = [pytest.mark.trio, pytest.mark.slow]
DEADLINES = Deadlines(ping=0.1, stalled=0.5, lost=1.5, pause=0.1)
KEY = bytes(range(32))
PROMPTS = tuple(tuple(b"the cat sat on the mat, " * (number + 1)) for number in range(4))

Strike = tuple[OwnPeers, int, int]  # whose process of which stage gets which signal


@asynccontextmanager
async def fleet_of_processes(
    tiny_store: tuple[Store, Manifest], kv: str, drafter: str
) -> AsyncIterator[tuple[Fleet, OwnPeers]]:
    store, manifest = tiny_store
    options = FleetOptions(
        manifest=manifest,
        store_root=store.root,
        peers=embedded_peers(2),
        precision="exact",
        kv=kv,
        context=512,
        threads=1,
        kv_cells=8192,
        drafter=drafter,
        deadlines=DEADLINES,
    )
    speculation = await open_speculation(options)
    async with (
        started_peers(options, KEY, lambda line: None) as peers,
        keep_fleet(options, KEY, peers, speculation) as fleet,
    ):
        yield fleet, peers


async def ask_all(fleet: Fleet, *, tokens: int, strikes: Mapping[int, Strike]) -> list[Answer]:
    """Four sessions at once; `strikes` by the number of the token at which they happen."""
    answers: dict[int, Answer] = {}
    shown = 0

    def strike(text: str) -> None:
        nonlocal shown
        shown += 1
        if shown in strikes:
            peers, stage, number = strikes[shown]
            peers.process(stage).send_signal(number)

    async def one(number: int) -> None:
        asked = request(PROMPTS[number], max_tokens=tokens, temperature=0.8, seed=number)
        answers[number] = await fleet.generate(fleet.new_session(), asked, Letters(), on_text=strike)

    async with trio.open_nursery() as nursery:
        for number in range(len(PROMPTS)):
            nursery.start_soon(one, number)
    return [answers[number] for number in range(len(PROMPTS))]


@pytest.mark.parametrize(("kv", "drafter"), [("masked", "ngram"), ("paged", "none")])
async def test_killed_and_stopped_processes_cost_no_token(
    tiny_store: tuple[Store, Manifest], kv: str, drafter: str
) -> None:
    async with fleet_of_processes(tiny_store, kv, drafter) as (fleet, peers):
        undisturbed = await ask_all(fleet, tokens=100, strikes={})
        strikes = {
            20: (peers, 0, signal.SIGKILL),
            150: (peers, 1, signal.SIGSTOP),
        }
        for session in list(fleet.sessions):
            await fleet.close_session(session)
        answers = await ask_all(fleet, tokens=100, strikes=strikes)
        losses = [recovery.loss for recovery in fleet.recoveries]
    assert [answer.error for answer in answers] == [None] * 4
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in undisturbed]
    assert [(loss.stage, loss.cause) for loss in losses] == [(0, Cause.DIED), (1, Cause.SILENT)]
    killed, stopped = losses
    assert killed.noticed - killed.began < 0.5
    assert DEADLINES.lost <= stopped.noticed - stopped.began < 2 * DEADLINES.lost
