from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import trio
import trio.testing

from fleetchat.errors import AuthenticationFailed, PeerLost
from fleetchat.ids import Address, BuildKey, Epoch, SessionId
from fleetchat.peer import serve as serve_module
from fleetchat.peer import service as service_module
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.queue import WINDOW
from fleetchat.peer.serve import PeerOptions
from fleetchat.transport.link import dial
from fleetchat.wire.frames import (
    Attached,
    AttachRole,
    Cancel,
    Close,
    Compact,
    Error,
    FaultCode,
    Fork,
    Goodbye,
    NotYet,
    Progress,
    Ready,
    ResultStatus,
    WireDtype,
)
from fleetchat.wire.states import Purpose
from tests.fakes.engine import FakeEngine, Mischief, by_session
from tests.peer.builders import batch, manifest, opening, piece
from tests.peer.coordinator import (
    KEY,
    FakeStore,
    attach,
    attached,
    chain_id,
    closing_links,
    control,
    fake_peer,
    open_chain,
    open_over,
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


async def test_ready_says_what_the_stage_is() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address], cells_wanted=777)
        (ready,) = chain.ready
        assert (ready.cells, ready.window, ready.engine, ready.can_fork) == (777, WINDOW, "masked", False)
        assert (ready.device, ready.self_check, ready.sessions_per_batch) == ("CPU", "passed", 1)
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


async def test_attach_before_open_is_not_yet() -> None:
    async with fake_peer() as peer:
        for role in AttachRole:
            link, answer = await attach(peer.address, opening(), role)
            assert answer == NotYet()
            with pytest.raises(PeerLost):
                await link.receive()


async def test_attach_of_another_epoch_is_not_yet() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address])
        for epoch in (2, 3):
            link, answer = await attach(peer.address, chain.opens[0], AttachRole.UPSTREAM, epoch=epoch)
            assert answer == NotYet()
            await link.aclose()
        await chain.close()


async def test_a_second_link_of_a_kind_is_refused_and_the_first_one_works_on() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address])
        link, answer = await attach(peer.address, chain.opens[0], AttachRole.UPSTREAM)
        assert isinstance(answer, Error)
        assert answer.text == "stage 0 does not take another upstream link"
        await link.aclose()
        assert (await chain.round(piece(1, 0, [5]))).results[0].token == by_session(1, 1)
        await chain.close()


async def test_a_stage_before_the_last_takes_no_return_link() -> None:
    async with fake_peer(2) as first, fake_peer(2) as last:
        chain = await open_chain([first.address, last.address])
        link, answer = await attach(first.address, chain.opens[0], AttachRole.RETURN)
        assert isinstance(answer, Error)
        await link.aclose()
        await chain.close()


async def test_a_stage_waits_for_the_open_of_the_next_one() -> None:
    async with fake_peer(2) as first, fake_peer(2) as last:
        opens = [opening(0, 2, next_address=last.address), opening(1, 2)]
        one, two = await control(first.address), await control(last.address)
        await one.send(opens[0])
        assert isinstance(await one.receive(), Progress)
        await wait_for(lambda: len(first.engines) == 1)
        await two.send(opens[1])
        assert isinstance(await until(one, Ready), Ready)
        assert isinstance(await until(two, Ready), Ready)
        await one.aclose()
        await two.aclose()


async def test_a_next_stage_that_nobody_serves_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetchat.peer.downstream.CONNECT_DEADLINE", 0.1)
    async with fake_peer(2) as first, fake_peer(2) as last:
        link = await control(first.address)
        await link.send(opening(0, 2, next_address=last.address))
        error = await until(link, Error)
        assert error.code is FaultCode.LINK
        assert error.text == (
            f"stage 0 cannot reach stage 1 at {last.address} within 0.1 s: "
            "it has not been asked to serve this chain"
        )
        await link.aclose()


async def test_a_higher_epoch_replaces_the_chain_and_keeps_the_shard() -> None:
    async with fake_peer(2) as first, fake_peer(2) as last:
        addresses = [first.address, last.address]
        old = await open_chain(addresses)
        await old.round(piece(1, 0, [5, 6, 7]))
        new = await open_over(old.controls, addresses, epoch=Epoch(2))
        assert isinstance(await old.upstream.receive(), Goodbye)
        assert isinstance(await old.returning.receive(), Goodbye)
        result = await new.round(piece(1, 0, [8]))
        assert result.results[0].token == by_session(1, 1)
        assert result.timings[0].cells == ((1, 0),)
        assert (len(first.engines), len(last.engines)) == (1, 1)
        await new.close()


async def test_a_higher_epoch_may_come_over_a_new_control_link() -> None:
    async with fake_peer() as peer:
        old = await open_chain([peer.address])
        await old.round(piece(1, 0, [5, 6, 7]))
        new = await open_chain([peer.address], epoch=Epoch(2))
        assert (await new.round(piece(1, 0, [8]))).results[0].token == by_session(1, 1)
        await new.close()
        await old.close()


async def test_the_same_epoch_from_somebody_else_is_refused() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address])
        link = await control(peer.address)
        await link.send(opening())
        error = await until(link, Error)
        assert error.text == "epoch 1 of this chain is served here, epoch 1 came"
        assert (await chain.round(piece(1, 0, [5]))).results[0].token == by_session(1, 1)
        await link.aclose()
        await chain.close()


async def test_frames_of_an_old_epoch_are_dropped_and_counted() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address], epoch=Epoch(3))
        await chain.upstream.send(batch(piece(1, 0, [5]), sequence=9, epoch=2))
        await chain.upstream.send(Close(Epoch(2), SessionId(1)))
        result = await chain.round(piece(1, 0, [5, 6]))
        assert (result.sequence, result.results[0].token) == (0, by_session(1, 2))
        assert (await chain.statistics()).dropped_frames == 2
        await chain.close()


async def test_a_chain_whose_control_link_is_gone_is_freed_with_its_grant() -> None:
    async with fake_peer(cells=1000) as peer:
        chain = await open_chain([peer.address], cells_wanted=1000)
        await chain.round(piece(1, 0, [5]))
        await chain.controls[0].aclose()
        assert isinstance(await chain.upstream.receive(), Goodbye)
        await wait_for(lambda: peer.engines[0].sessions() == [])
        again = await open_chain([peer.address], chain=chain_id("d"), cells_wanted=1000)
        assert again.ready[0].cells == 1000
        assert len(peer.engines) == 1
        await again.close()


async def test_goodbye_of_the_coordinator_frees_the_chain_without_an_error() -> None:
    async with fake_peer(2) as first, fake_peer(2) as last:
        chain = await open_chain([first.address, last.address])
        await chain.controls[0].send(Goodbye("done"))
        assert await chain.controls[0].receive() == Goodbye("the peer has ended the chain")
        assert (await chain.statistics(1)).batches == 0, "the other stage lives on, and has no error to tell"
        await chain.close()


@pytest.mark.parametrize("broken", ["upstream", "returning"])
async def test_a_broken_data_link_is_told_on_the_control_link(broken: str) -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address])
        await getattr(chain, broken).aclose()
        error = await until(chain.controls[0], Error)
        role = "upstream" if broken == "upstream" else "return"
        assert error.code is FaultCode.LINK
        assert error.text.startswith(f"the {role} link broke: 127.0.0.1:")
        again = await open_over(chain.controls, [peer.address], epoch=Epoch(2))
        assert (await again.round(piece(1, 0, [5]))).results[0].token == by_session(1, 1)
        await again.close()


async def test_a_lost_next_stage_is_told_by_the_stage_before_it() -> None:
    async with fake_peer(2) as first:
        async with fake_peer(2) as last:
            chain = await open_chain([first.address, last.address])
        assert isinstance(await until(chain.controls[1], Goodbye), Goodbye)
        await chain.send(piece(1, 0, [5]))
        error = await until(chain.controls[0], Error)
        assert error.code is FaultCode.LINK
        assert error.text.startswith("the link out of this stage broke: ")
        await chain.close()


async def test_a_peer_that_leaves_says_goodbye() -> None:
    async with closing_links():
        async with fake_peer() as peer:
            chain = await open_chain([peer.address])
        assert isinstance(await until(chain.controls[0], Goodbye), Goodbye)
    assert peer.engines[0].closed


async def test_one_batch_beyond_the_window_closes_the_link() -> None:
    release = threading.Event()

    def slow(request: EngineRequest) -> FakeEngine:
        return FakeEngine(mischief=Mischief(before_run=lambda number: release.wait()))  # type: ignore[arg-type]

    async with fake_peer(make_engine=slow) as peer:
        chain = await open_chain([peer.address])
        for _ in range(WINDOW):
            await chain.send(piece(1, 0, [5], draw=None))
        assert (await chain.statistics()).queue_length >= WINDOW - 1
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
        await chain.wait_statistics(lambda statistics: statistics.queue_length == 3)
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


async def test_batches_before_ready_end_the_chain() -> None:
    loading = threading.Event()

    def make(request: EngineRequest) -> FakeEngine:
        loading.wait()
        return FakeEngine()

    async with fake_peer(make_engine=make) as peer:
        link = await control(peer.address)
        await link.send(opening())
        upstream = await attached(peer.address, opening(), AttachRole.UPSTREAM)
        await upstream.send(batch(piece(1, 0, [5])))
        error = await until(link, Error)
        assert error.text == "the upstream link broke: Forward before READY"
        loading.set()
        await link.aclose()


async def test_a_control_link_that_goes_while_loading_leaves_the_shard_for_the_next() -> None:
    loading = threading.Event()

    def make(request: EngineRequest) -> FakeEngine:
        loading.wait()
        return FakeEngine()

    async with fake_peer(make_engine=make) as peer:
        link = await control(peer.address)
        await link.send(opening())
        assert await link.receive() == Progress("checking the shard", 0, 2)
        await link.aclose()
        loading.set()
        chain = await open_chain([peer.address], chain=chain_id("d"))
        assert len(peer.engines) == 1
        await chain.close()


async def test_progress_comes_at_most_four_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert service_module.PROGRESS_INTERVAL == 0.25
    steps = threading.Event()

    def make(request: EngineRequest) -> FakeEngine:
        steps.wait()
        return FakeEngine()

    monkeypatch.setattr(service_module, "PROGRESS_INTERVAL", 0.01)
    async with fake_peer(make_engine=make) as peer:
        link = await control(peer.address)
        await link.send(opening())
        seen: list[Progress] = []
        while not seen or seen[-1].what != "loading the shard":
            frame = await link.receive()
            assert isinstance(frame, Progress)
            seen.append(frame)
        steps.set()
        await until(link, Ready)
        assert len(seen) <= 2
        await link.aclose()


async def refusal(peer_address: Address, **changes: object) -> Error:
    link = await control(peer_address)
    await link.send(opening(**changes))  # type: ignore[arg-type]
    error = await until(link, Error)
    await link.aclose()
    return error


async def test_an_open_that_does_not_fit_is_refused_and_a_right_one_may_follow() -> None:
    async with fake_peer() as peer:
        link = await control(peer.address)
        await link.send(replace(opening(), vocabulary=300))
        error = await until(link, Error)
        assert error.code is FaultCode.MISMATCH
        assert error.text == "the vocabulary differs: the chat says 300, this peer says 259"
        chain = await open_over([link], [peer.address], epoch=Epoch(2))
        assert (await chain.round(piece(1, 0, [5]))).results[0].token == by_session(1, 1)
        await chain.close()


async def test_an_unknown_build_is_refused() -> None:
    async with fake_peer(store=FakeStore([])) as peer:
        error = await refusal(peer.address)
        assert error.code is FaultCode.NO_SHARD
        assert error.text == "the chat wants a shard of build bbbbbbbbbbbb, this peer has no shards at all"


async def test_a_damaged_shard_is_refused_and_looked_at_again_the_next_time() -> None:
    store = FakeStore([manifest()], damaged="stage0.bin was changed")
    async with fake_peer(store=store) as peer:
        error = await refusal(peer.address)
        assert (error.code, error.text, error.hint) == (
            FaultCode.SHARD_DAMAGED,
            "stage0.bin was changed",
            "build it again",
        )
        store.damaged = ""
        chain = await open_chain([peer.address])
        await chain.close()


async def test_an_engine_that_cannot_be_made_is_refused_with_its_reason() -> None:
    def make(request: EngineRequest) -> FakeEngine:
        raise RuntimeError("the device is on fire")

    async with fake_peer(make_engine=make) as peer:
        error = await refusal(peer.address)
        assert error.code is FaultCode.ENGINE
        assert error.text == "the shard could not be loaded: RuntimeError: the device is on fire"


async def test_cells_are_shared_out_and_never_more_than_there_are() -> None:
    async with fake_peer(cells=1000) as peer:
        mine = await open_chain([peer.address], chain=chain_id("a"), cells_wanted=600)
        theirs = await open_chain([peer.address], chain=chain_id("d"), cells_wanted=600)
        assert [chain.ready[0].cells for chain in (mine, theirs)] == [600, 400]
        error = await refusal(peer.address, chain=chain_id("e"))
        assert error.code is FaultCode.CELLS
        assert error.text == (
            "one session needs 320 KV cells, this stage has 0 left of 1000, "
            "1000 of them taken by other chains"
        )
        await mine.close()
        await theirs.close()


async def test_a_peer_keeps_at_most_two_idle_shards() -> None:
    builds = [manifest(build_key=BuildKey(digit * 64)) for digit in "0123"]
    async with fake_peer(store=FakeStore(builds)) as peer:
        for build in builds:
            chain = await open_chain([peer.address], build_key=build.build_key)
            await chain.close()
        await wait_for(lambda: sum(not engine.closed for engine in peer.engines) == 2)
        assert [engine.closed for engine in peer.engines] == [True, True, False, False]


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
        await chain.round(piece(1, 0, [5]))
        await wait_for(lambda: len(chain.returning.round_trips) == 1)
        await chain.close()


async def test_a_defect_of_the_worker_ends_the_chain_and_not_the_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address])

        def fails(*arguments: object) -> None:
            raise ZeroDivisionError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr("fleetchat.peer.stage.StageWorker.forward", fails)
            await chain.send(piece(1, 0, [5]))
            error = await until(chain.controls[0], Error)
        assert error.code is FaultCode.INTERNAL
        assert error.text == "stage 0 failed inside: ZeroDivisionError: a defect"
        again = await open_over(chain.controls, [peer.address], epoch=Epoch(2))
        assert (await again.round(piece(1, 0, [5]))).results[0].token == by_session(1, 1)
        await again.close()


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


async def test_attached_is_the_answer_to_a_right_attach() -> None:
    async with fake_peer() as peer:
        link = await control(peer.address)
        await link.send(opening())
        upstream = await attached(peer.address, opening(), AttachRole.UPSTREAM)
        returning, answer = await attach(peer.address, opening(), AttachRole.RETURN)
        assert answer == Attached()
        for one in (link, upstream, returning):
            await one.aclose()


async def test_one_stranger_too_many_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert serve_module.MAX_STRANGERS == 64
    monkeypatch.setattr(serve_module, "MAX_STRANGERS", 2)
    async with fake_peer() as peer, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(await open_tcp(peer.address)) for _ in range(2)]
        extra = await stack.enter_async_context(await open_tcp(peer.address))
        assert await extra.receive_some() == b""
        with pytest.raises(PeerLost):
            await control(peer.address)
        await silent[0].aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        chain = await open_chain([peer.address])
        assert (await chain.round(piece(1, 0, [5]))).results[0].token == by_session(1, 1)
        await chain.close()


async def test_a_silent_stranger_is_reaped() -> None:
    assert PeerOptions(key=KEY).handshake_deadline == 5.0
    async with fake_peer(options=PeerOptions(key=KEY, handshake_deadline=0.05)) as peer:
        silent = await open_tcp(peer.address)
        assert await silent.receive_some() == b""
        await silent.aclose()


async def open_tcp(address: Address) -> trio.SocketStream:
    return await trio.open_tcp_stream(address.host, address.port)


@pytest.mark.parametrize("purpose", list(Purpose))
async def test_a_link_that_is_not_used_is_reaped(purpose: Purpose) -> None:
    async with fake_peer(options=PeerOptions(key=KEY, first_frame_deadline=0.05)) as peer:
        link = await dial(peer.address, KEY, purpose=purpose)
        if purpose is Purpose.CONTROL:
            assert isinstance(await link.receive(), Goodbye)
        with pytest.raises(PeerLost):
            await link.receive()


async def test_the_wrong_key_is_refused() -> None:
    async with fake_peer() as peer:
        with pytest.raises(AuthenticationFailed):
            await dial(peer.address, bytes(32), purpose=Purpose.CONTROL)
