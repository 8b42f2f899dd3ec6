from __future__ import annotations

import pytest

from fleetchat.peer.interfaces import Reachable, is_loopback, is_unspecified, ordered, reachable_hosts


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("localhost.example", False),
    ],
)
def test_what_is_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_what_stands_for_all_addresses() -> None:
    assert [is_unspecified(host) for host in ("0.0.0.0", "::", "::1", "desk")] == [True, True, False, False]


def test_the_default_route_comes_first_and_useless_addresses_are_left_out() -> None:
    hosts = ["127.0.0.1", "172.17.0.1", "169.254.3.4", "10.0.0.2"]
    assert ordered([Reachable(host) for host in hosts], "10.0.0.2") == [
        Reachable("10.0.0.2"),
        Reachable("172.17.0.1"),
    ]


def test_one_address_is_itself_and_all_addresses_are_never_none() -> None:
    assert reachable_hosts("10.0.0.2") == [Reachable("10.0.0.2")]
    for bound in ("0.0.0.0", "::"):
        assert all(one.host not in (bound, "127.0.0.1", "::1") for one in reachable_hosts(bound))
        assert reachable_hosts(bound)
