from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from fleetchat.ids import Epoch, SessionId
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.queue import WINDOW
from fleetchat.wire.frames import (
    Cancel,
    Close,
    Compact,
    Error,
    FaultCode,
    Fork,
    ResultStatus,
    WireDtype,
)
from tests.fakes.engine import FakeEngine, Mischief, by_session
from tests.peer.builders import batch, piece
from tests.peer.coordinator import (
    chain_id,
    fake_peer,
    open_chain,
    until,
    wait_for,
)

pytestmark = pytest.mark.trio


async def test_two_stages_answer() -> None:
    async with fake_peer(2) as first, fake_peer(2) as last:
        chain = await open_chain([first.address, last.address])
        result = await chain.round(piece(1, 0, [5, 6]), piece(2, 0, [7]))
        assert [item.token for item in result.results] == [by_session(1, 2), by_session(2, 1)]
        assert [timing.cells for timing in result.timings] == [((2, 0), (1, 0))] * 2
        drafts = [by_session(1, 3), 0]
        result = await chain.round(piece(1, 2, [by_session(1, 2), *drafts], drafts=2))
        assert (result.results[0].accepted, result.results[0].token) == (1, by_session(1, 4))
        await chain.close()


async def test_both_stages_of_a_chain_may_be_on_one_peer() -> None:
    async with fake_peer(2) as peer:
        chain = await open_chain([peer.address, peer.address])
        result = await chain.round(piece(1, 0, [5, 6]))
        assert result.results[0].token == by_session(1, 2)
        assert [engine.stage for engine in sorted(peer.engines, key=lambda one: one.stage)] == [0, 1]
        await chain.close()


async def test_one_shard_serves_two_chains_with_the_same_session_numbers() -> None:
    async with fake_peer() as peer:
        mine = await open_chain([peer.address], chain=chain_id("a"))
        theirs = await open_chain([peer.address], chain=chain_id("b"))
        assert len(peer.engines) == 1
        await mine.round(piece(1, 0, [5, 6, 7]))
        result = await theirs.round(piece(1, 0, [8]))
        assert result.results[0].token == by_session(1, 1)
        await theirs.close()
        await wait_for(lambda: [key.chain for key in peer.engines[0].sessions()] == ["a" * 32])
        result = await mine.round(piece(1, 3, [9]))
        assert result.results[0].token == by_session(1, 4)
        await mine.close()


async def test_another_precision_is_another_load() -> None:
    async with fake_peer() as peer:
        mine = await open_chain([peer.address], chain=chain_id("a"))
        theirs = await open_chain(
            [peer.address], chain=chain_id("b"), precision="exact", wire_dtype=WireDtype.F32
        )
        assert len(peer.engines) == 2
        await mine.close()
        await theirs.close()


async def test_frames_of_an_old_epoch_are_dropped_and_counted() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address], epoch=Epoch(3))
        await chain.upstream.send(batch(piece(1, 0, [5]), sequence=9, epoch=2))
        await chain.upstream.send(Close(Epoch(2), SessionId(1)))
        result = await chain.round(piece(1, 0, [5, 6]))
        assert (result.sequence, result.results[0].token) == (0, by_session(1, 2))
        assert (await chain.statistics()).dropped_frames == 2
        await chain.close()


async def test_one_batch_beyond_the_window_closes_the_link() -> None:
    release = threading.Event()

    def slow(request: EngineRequest) -> FakeEngine:
        return FakeEngine(mischief=Mischief(before_run=lambda number: release.wait()))  # type: ignore[arg-type]

    async with fake_peer(make_engine=slow) as peer:
        chain = await open_chain([peer.address])
        for _ in range(WINDOW):
            await chain.send(piece(1, 0, [5], draw=None))
        while (await chain.statistics()).queue_length < WINDOW - 1:
            pass  # the control link may be read before the data link is
        await chain.send(piece(1, 0, [5], draw=None))
        error = await until(chain.controls[0], Error)
        assert (error.code, error.text) == (
            FaultCode.PROTOCOL,
            f"the upstream link broke: more than {WINDOW} batches in flight",
        )
        release.set()
        await chain.close()


async def test_a_cancel_skips_what_waits_and_truncates() -> None:
    begun, release = threading.Event(), threading.Event()

    def before_run(number: int) -> None:
        if number == 1:
            begun.set()
            release.wait()

    def make(request: EngineRequest) -> FakeEngine:
        return FakeEngine(mischief=Mischief(before_run=before_run))

    async with fake_peer(make_engine=make) as peer:
        chain = await open_chain([peer.address])
        await chain.round(piece(1, 0, [5, 6]))
        await chain.send(piece(2, 0, [5], draw=None))  # holds the engine
        await trio.to_thread.run_sync(begun.wait)
        await chain.send(piece(1, 2, [7]), piece(3, 0, [5]))
        await chain.upstream.send(Cancel(Epoch(1), SessionId(1), 1))
        await chain.send(piece(1, 1, [8]))
        await chain.wait_statistics(lambda statistics: statistics.queue_length == 4)  # the held one as well
        release.set()
        held, skipped, after = [await chain.result() for _ in range(3)]
        assert [item.status for item in held.results] == [ResultStatus.NO_DRAW]
        assert [item.status for item in skipped.results] == [ResultStatus.SKIPPED, ResultStatus.DRAWN]
        assert after.results[0].token == by_session(1, 2)
        assert after.timings[0].cells == ((2, 1),)
        await chain.close()


async def test_orders_go_through_all_stages() -> None:
    async with fake_peer(2) as first, fake_peer(2) as last:
        chain = await open_chain([first.address, last.address])
        await chain.round(piece(1, 0, [5, 6, 7]), piece(2, 0, [5]))
        await chain.upstream.send(Cancel(Epoch(1), SessionId(1), 1))
        await chain.upstream.send(Compact(Epoch(1), SessionId(1)))
        await chain.upstream.send(Close(Epoch(1), SessionId(2)))
        result = await chain.round(piece(1, 1, [8]))
        assert [timing.cells for timing in result.timings] == [((2, 0),)] * 2
        for stage in range(2):
            statistics = await chain.statistics(stage)
            assert [(one.session, one.live, one.dead) for one in statistics.sessions] == [(1, 2, 0)]
            assert (statistics.cells_used, statistics.batches) == (2, 2)
        await chain.close()


async def test_an_idle_stage_compacts_to_the_end() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address])
        await chain.round(piece(1, 0, [5, 6, 7]))
        await chain.upstream.send(Cancel(Epoch(1), SessionId(1), 1))
        await chain.upstream.send(Compact(Epoch(1), SessionId(1)))
        await chain.wait_statistics(lambda statistics: statistics.cells_used == 1)
        await chain.close()


async def test_fork_on_an_engine_that_cannot_ends_the_chain() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address])
        await chain.round(piece(1, 0, [5]))
        await chain.upstream.send(Fork(Epoch(1), SessionId(2), SessionId(1), 1))
        error = await until(chain.controls[0], Error)
        assert error.code is FaultCode.PROTOCOL
        assert error.text == "the upstream link broke: FORK, but the masked engine does not fork"
        await wait_for(lambda: peer.engines[0].sessions() == [])
        await chain.close()


async def test_statistics_know_the_round_trip_to_the_next_stage() -> None:
    async with fake_peer(2) as first, fake_peer(2) as last:
        chain = await open_chain([first.address, last.address])
        await chain.wait_statistics(lambda statistics: statistics.next_round_trip_us > 0)
        statistics = await chain.statistics(1)
        assert statistics.next_round_trip_us == 0
        assert statistics.memory_resident > 10_000_000
        await chain.close()


async def test_links_are_pinged_both_ways() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address])
        await chain.returning.ping()
        position = 0
        while not chain.returning.round_trips:  # a RESULT may overtake the PONG, and only a reader meets it
            await chain.round(piece(1, position, [5]))
            position += 1
        assert len(chain.returning.round_trips) == 1
        await chain.close()


async def test_a_full_queue_pushes_back_instead_of_growing() -> None:
    release = threading.Event()

    def make(request: EngineRequest) -> FakeEngine:
        return FakeEngine(mischief=Mischief(before_run=lambda number: release.wait()))  # type: ignore[arg-type]

    async with fake_peer(make_engine=make) as peer:
        chain = await open_chain([peer.address], max_rows=64)
        for first in range(0, 64 * 12, 64):
            await chain.send(piece(1, first, range(64), draw=None))
        statistics = await chain.wait_statistics(lambda statistics: statistics.queue_length >= 2)
        for _ in range(20):
            statistics = await chain.statistics()
        assert statistics.queue_length <= 3
        release.set()
        results = [await chain.result() for _ in range(12)]
        assert {result.results[0].status for result in results} <= {ResultStatus.NO_DRAW}
        await chain.close()
