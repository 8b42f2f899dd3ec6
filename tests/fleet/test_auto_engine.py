"""`kv = "auto"`: the paged engine where every stage takes it, else the masked one, and the reason for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from fleetchat.cutter.manifest import Manifest
from fleetchat.engine.interface import StageEngine
from fleetchat.errors import EngineRefused, FleetError, InputError
from fleetchat.fleet.coordinator import open_fleet
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.ids import Address
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.serve import PeerOptions, serve
from tests.fakes.chain import KEY, FakeStore, Letters, request
from tests.fakes.engine import FakeEngine, by_position, reply
from tests.fakes.paged_engine import FakePagedEngine, history_reply
from tests.peer.builders import manifest

pytestmark = pytest.mark.trio
BROKEN = FleetError("the paged engine failed its self-check on CPU: rollback: wrong", hint="use --kv masked")


@asynccontextmanager
async def peers(
    *, engines: Sequence[tuple[str, ...]], broken: Sequence[int] = ()
) -> AsyncIterator[FleetOptions]:
    """A peer for each entry of `engines`; the paged engine does not pass on the `broken` ones."""
    build = manifest(len(engines))

    def make(index: int, asked: EngineRequest) -> StageEngine:
        if asked.engine == "masked":
            return FakeEngine(index, len(engines), oracle=by_position)
        if index in broken:
            raise BROKEN
        return FakePagedEngine(index, len(engines))

    async with trio.open_nursery() as nursery:
        specs = []
        for index, served in enumerate(engines):
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            specs.append(PeerSpec(Address(*listeners[0].socket.getsockname()[:2])))
            run = partial(serve, store=FakeStore(build), engine_factory=partial(make, index))
            nursery.start_soon(run, listeners, PeerOptions(KEY, engines=served))
        yield options_for(build, tuple(specs))
        nursery.cancel_scope.cancel()


def options_for(build: Manifest, specs: tuple[PeerSpec, ...]) -> FleetOptions:
    return FleetOptions(
        manifest=build,
        store_root=Path("unused"),
        peers=specs,
        precision="fast",
        kv="auto",
        context=64,
        key=KEY,
        connect_deadline=2.0,
    )


async def reply_and_reason(options: FleetOptions) -> tuple[list[int], str, str]:
    async with open_fleet(options) as fleet:
        answer = await fleet.generate(
            fleet.new_session(), request([1, 2, 3], max_tokens=5), Letters(), on_text=lambda text: None
        )
        snapshot = fleet.snapshot()
        assert {stage.engine for stage in snapshot.stages} == {snapshot.kv}
        return list(answer.token_ids), snapshot.kv, snapshot.kv_reason


BOTH = ("masked", "paged")


async def test_paged_is_taken_where_it_passes_on_every_stage() -> None:
    async with peers(engines=[BOTH, BOTH]) as options:
        tokens, kv, reason = await reply_and_reason(options)
    assert (tokens, kv) == (history_reply([1, 2, 3], 5), "paged")
    assert "faster" in reason


@pytest.mark.parametrize(
    ("engines", "broken", "reason"),
    [
        ([BOTH, ("masked",)], (), "the KV engine differs: the chat says paged, this peer says masked"),
        ([BOTH, BOTH], (1,), "the paged engine failed its self-check on CPU: rollback: wrong"),
        ([BOTH, BOTH], (0, 1), "the paged engine failed its self-check on CPU: rollback: wrong"),
    ],
)
async def test_masked_is_taken_where_one_stage_does_not_take_the_other(
    engines: list[tuple[str, ...]], broken: tuple[int, ...], reason: str
) -> None:
    async with peers(engines=engines, broken=broken) as options:
        tokens, kv, why = await reply_and_reason(options)
    assert (tokens, kv) == (reply(0, 3, 5, by_position), "masked")
    assert why.startswith("not paged: stage ")
    assert why.endswith(reason)


async def test_an_engine_that_was_asked_for_is_not_replaced() -> None:
    async with peers(engines=[BOTH], broken=(0,)) as options:
        with pytest.raises(EngineRefused, match="self-check") as caught:
            await reply_and_reason(replace(options, kv="paged"))
        assert caught.value.hint == "use --kv masked"
        assert (await reply_and_reason(replace(options, kv="masked")))[1:] == ("masked", "asked for")


async def test_a_model_that_masking_is_wrong_for_is_not_drafted_for_after_all() -> None:
    async with peers(engines=[BOTH], broken=(0,)) as options:
        check = replace(options.manifest.self_check, rollback=0.3, rollback_passed=False)
        sliding = replace(options, manifest=replace(options.manifest, self_check=check), drafter="ngram")
        with pytest.raises(InputError, match="cannot be used with speculation on the engine masked"):
            await reply_and_reason(sliding)
