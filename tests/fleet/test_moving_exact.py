"""Real engines in `exact`: the cut changes in the middle, and the ids are those of an undisturbed run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from fleetchat.cutter.build import build
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.received import PeerStore
from fleetchat.cutter.recipe import load
from fleetchat.cutter.store import Store
from fleetchat.fleet.coordinator import Fleet, keep_fleet
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.speculation import open_speculation
from fleetchat.ids import Address
from fleetchat.peer.engines import create_engine
from fleetchat.peer.serve import PeerOptions, serve
from tests.fakes.chain import Letters, request
from tests.fakes.standing_peers import start_fixed
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.trio, pytest.mark.slow]

KEY = bytes(32)
RECIPE = 'title = "Tiny"\n[source]\nkind = "path"\npath = "model"\n'
TEXT = b"the cat sat on the mat, the cat sat on the hat, "
PROMPTS = tuple(tuple(TEXT * (1 + number) + b"the cat sat"[number:]) for number in range(3))
TOKENS = 96


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[int, Manifest]]:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder / "model")
    (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    store = Store(folder / "store")
    return store, {stages: build(load(folder / "tiny.toml"), stages, None, store) for stages in (1, 2)}


async def serve_one(root: Path, task_status: trio.TaskStatus[Address]) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(Address(*listeners[0].socket.getsockname()[:2]))
    options = PeerOptions(KEY, threads=1, cells=1 << 14)
    await serve(listeners, options, store=PeerStore(root), engine_factory=create_engine)


@asynccontextmanager
async def fleet_and_others(
    cuts: tuple[Store, dict[int, Manifest]], kv: str, tmp_path: Path
) -> AsyncIterator[tuple[Fleet, Callable[[int], FleetOptions]]]:
    """A fleet of 2 stages, and the options for another number of them; the peers' stores are empty."""
    store, manifests = cuts
    async with trio.open_nursery() as nursery:
        addresses = [await nursery.start(serve_one, tmp_path / f"peer-{number}") for number in range(2)]

        def options(stages: int) -> FleetOptions:
            return FleetOptions(
                manifest=manifests[stages],
                store_root=store.root,
                peers=tuple(PeerSpec(address) for address in addresses[:stages]),
                precision="exact",
                kv=kv,
                context=512,
                kv_cells=4096,
                key=KEY,
                drafter="ngram",
                draft_depth=3,
            )

        peers = await start_fixed(options(2), KEY, lambda line: None)
        speculation = await open_speculation(options(2))
        async with keep_fleet(options(2), KEY, peers, speculation, start=start_fixed) as fleet:
            yield fleet, options
        nursery.cancel_scope.cancel()


async def ask_all(fleet: Fleet, on_text: Callable[[str], None] = lambda text: None) -> list[tuple[int, ...]]:
    answers: dict[int, tuple[int, ...]] = {}

    async def one(number: int) -> None:
        asked = request(PROMPTS[number], max_tokens=TOKENS, temperature=0.8, seed=5 + number)
        answer = await fleet.generate(fleet.new_session(), asked, Letters(), on_text=on_text)
        assert answer.error is None
        answers[number] = answer.token_ids

    async with trio.open_nursery() as nursery:
        for number in range(len(PROMPTS)):
            nursery.start_soon(one, number)
    return [answers[number] for number in range(len(PROMPTS))]


@pytest.mark.parametrize("kv", ["masked", "paged"])
async def test_the_ids_are_those_of_an_undisturbed_run(
    kv: str, cuts: tuple[Store, dict[int, Manifest]], tmp_path: Path
) -> None:
    """Whenever the moves come: they begin while the answers are written, and may end behind them."""
    async with fleet_and_others(cuts, kv, tmp_path) as (fleet, options):
        expected = await ask_all(fleet)
        begin = trio.Event()

        async def move() -> None:
            await begin.wait()
            for stages in (1, 2):
                await fleet.move_to(options(stages))

        shown = 0

        def note(text: str) -> None:
            nonlocal shown
            shown += 1
            if shown == 10:
                begin.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            answers = [await ask_all(fleet, note) for _ in range(2)]
        assert fleet.moves == 2
        assert await ask_all(fleet) == expected
    assert answers == [expected] * 2
