from __future__ import annotations

import pytest
import trio

from fleetchat.errors import AuthenticationFailed, FleetError
from fleetchat.peer.guard import Guard
from fleetchat.peer.serve import PeerOptions
from fleetchat.transport.dialling import dial
from fleetchat.wire.states import Purpose
from tests.peer.coordinator import KEY, fake_peer


def test_an_address_is_refused_after_its_last_failure_for_a_while() -> None:
    guard = Guard(allowed=3, window=10)
    assert [guard.failed("10.0.0.1", now) for now in (0.0, 1.0, 2.0)] == [False, False, True]
    assert guard.is_blocked("10.0.0.1", 11.9)
    assert not guard.is_blocked("10.0.0.1", 12.0)
    assert not guard.is_blocked("10.0.0.2", 2.0)


def test_failures_that_are_long_ago_do_not_count() -> None:
    guard = Guard(allowed=3, window=10)
    assert not any(guard.failed("10.0.0.1", 6.0 * number) for number in range(20))


def test_who_has_the_key_begins_anew() -> None:
    guard = Guard(allowed=2, window=10)
    guard.failed("10.0.0.1", 0)
    guard.succeeded("10.0.0.1")
    assert not guard.failed("10.0.0.1", 1)


def test_a_network_of_ipv6_is_one_address() -> None:
    guard = Guard(allowed=2, window=10)
    guard.failed("2001:db8::1", 0)
    assert guard.failed("2001:db8::ffff%eth0", 0)
    assert guard.is_blocked("2001:db8::2", 1)
    assert not guard.is_blocked("2001:db8:0:1::2", 1)


def test_memory_is_bounded() -> None:
    guard = Guard(allowed=1, window=10, most=3)
    for number in range(10):
        guard.failed(f"10.0.0.{number}", 0)
    assert [number for number in range(10) if guard.is_blocked(f"10.0.0.{number}", 0)] == [7, 8, 9]


@pytest.mark.trio
async def test_a_peer_listens_no_more_to_who_fails_ten_times(caplog: pytest.LogCaptureFixture) -> None:
    options = PeerOptions(KEY, is_trusted=lambda host: False)
    async with fake_peer(options=options) as peer:
        for _ in range(10):
            with pytest.raises(AuthenticationFailed):
                await dial(peer.address, bytes(32), purpose=Purpose.CONTROL)
        with pytest.raises(FleetError):
            await dial(peer.address, KEY, purpose=Purpose.CONTROL)
        blocked = await trio.open_tcp_stream(*peer.address)
        assert await blocked.receive_some(1) == b""
        await blocked.aclose()
    assert caplog.messages.count("127.0.0.1 failed too often: nothing is taken from it for 60 s") == 1


@pytest.mark.trio
async def test_failures_of_this_machine_do_not_count() -> None:
    async with fake_peer() as peer:
        for _ in range(12):
            with pytest.raises(AuthenticationFailed):
                await dial(peer.address, bytes(32), purpose=Purpose.CONTROL)
        link = await dial(peer.address, KEY, purpose=Purpose.CONTROL)
        await link.aclose()
