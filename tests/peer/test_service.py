from __future__ import annotations

import itertools
import threading
from contextlib import suppress

import pytest
import trio

from fleetchat.errors import PeerLost
from fleetchat.ids import Epoch
from fleetchat.peer import service as service_module
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.queue import WINDOW
from fleetchat.peer.serve import PeerOptions
from fleetchat.wire.frames import (
    AttachRole,
    Error,
    FaultCode,
    Goodbye,
    Progress,
    Ready,
)
from tests.fakes.engine import FakeEngine, by_session
from tests.peer.builders import batch, opening, piece
from tests.peer.coordinator import (
    KEY,
    Coordinator,
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


async def test_ready_says_what_the_stage_is() -> None:
    async with fake_peer() as peer:
        chain = await open_chain([peer.address], cells_wanted=777)
        (ready,) = chain.ready
        assert (ready.cells, ready.window, ready.engine, ready.can_fork) == (777, WINDOW, "masked", False)
        assert (ready.device, ready.self_check, ready.sessions_per_batch) == ("CPU", "passed", 1)
        await chain.close()


async def test_stages_of_one_machine_divide_the_memory_that_is_free() -> None:
    requests: list[EngineRequest] = []

    def make(request: EngineRequest) -> FakeEngine:
        requests.append(request)
        return FakeEngine(0, 1)

    async with fake_peer(make_engine=make, options=PeerOptions(KEY, stages_here=3)) as peer:
        chain = await open_chain([peer.address])
        assert [request.sharers for request in requests] == [3]
        await chain.close()


async def test_a_stage_waits_for_the_open_of_the_next_one() -> None:
    loading = threading.Event()

    def make(request: EngineRequest) -> FakeEngine:
        loading.wait()
        return FakeEngine(0, 2)

    async with fake_peer(2, make_engine=make) as first, fake_peer(2) as last:
        opens = [opening(0, 2, next_address=last.address), opening(1, 2)]
        one, two = await control(first.address), await control(last.address)
        await one.send(opens[0])
        assert isinstance(await one.receive(), Progress)
        loading.set()
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
        assert await chain.controls[0].receive() == Goodbye("the chain is closed")
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
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_sending, chain, first.engines[0])
            error = await until(chain.controls[0], Error)
            nursery.cancel_scope.cancel()
        assert error.code is FaultCode.LINK
        assert error.text.startswith("the link out of this stage broke: ")
        await chain.close()


async def keep_sending(chain: Coordinator, engine: FakeEngine) -> None:
    """One batch after the other: the first may go into a socket that is closing, and nobody hears of it."""
    with suppress(PeerLost):
        for position in itertools.count():
            await chain.send(piece(1, position, [5]))
            await wait_for(lambda sent=position + 1: engine.slices_run == sent)


async def test_a_peer_that_leaves_says_goodbye() -> None:
    async with closing_links():
        async with fake_peer() as peer:
            chain = await open_chain([peer.address])
        assert isinstance(await until(chain.controls[0], Goodbye), Goodbye)
    assert peer.engines[0].closed


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
        assert isinstance(await link.receive(), Progress)  # the newest step, whichever that is by now
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
