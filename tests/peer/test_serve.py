from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import trio

from fleetchat.errors import AuthenticationFailed, PeerLost
from fleetchat.ids import Address, BuildKey, Epoch
from fleetchat.peer import serve as serve_module
from fleetchat.peer.loading import EngineRequest
from fleetchat.peer.serve import PeerOptions
from fleetchat.transport.dialling import dial
from fleetchat.transport.link import Link
from fleetchat.wire.frames import (
    Attached,
    AttachRole,
    Error,
    FaultCode,
    Goodbye,
    NotYet,
)
from fleetchat.wire.states import Purpose
from tests.fakes.engine import FakeEngine, by_session
from tests.peer.builders import manifest, opening, piece
from tests.peer.coordinator import (
    KEY,
    FakeStore,
    attach,
    attached,
    chain_id,
    control,
    fake_peer,
    open_chain,
    open_over,
    until,
    wait_for,
)

pytestmark = pytest.mark.trio


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
        chain = await open_over([await control_at_last(peer.address)], [peer.address])
        assert (await chain.round(piece(1, 0, [5]))).results[0].token == by_session(1, 1)
        await chain.close()


async def control_at_last(address: Address) -> Link:
    """A control link as soon as the peer has noticed that a stranger left."""
    while True:
        try:
            return await control(address)
        except PeerLost:
            await trio.sleep(0.001)


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


async def test_a_pause_ends_every_chain_and_takes_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "PAUSE_INTERVAL", 0.01)
    battery = [False]
    async with fake_peer(options=PeerOptions(KEY, pause=lambda: battery[0])) as peer:
        chain = await open_chain([peer.address])
        battery[0] = True
        goodbye = await until(chain.controls[0], Goodbye)
        assert goodbye.reason == "the peer's machine runs on its battery, so it serves nobody"
        assert (await refusal(peer.address)).code is FaultCode.PAUSED
        battery[0] = False
        while True:  # the peer looks at its battery again
            link = await control(peer.address)
            await link.send(opening(next_address=None, chain=chain_id("d")))
            frame = await link.receive()
            await link.aclose()
            if not isinstance(frame, Error):
                break
