"""HOST:PORT."""

from __future__ import annotations

import pytest

from fleetchat.config import parse_address
from fleetchat.errors import ConfigError
from fleetchat.ids import Address

GOOD = {
    "127.0.0.1:7077": Address("127.0.0.1", 7077),
    "living-room.local:1": Address("living-room.local", 1),
    "[::1]:65535": Address("::1", 65535),
    "[fe80::1%eth0]:7077": Address("fe80::1%eth0", 7077),
}


@pytest.mark.parametrize("text", GOOD)
def test_good_addresses_are_read_and_written_alike(text: str) -> None:
    assert parse_address(text) == GOOD[text]
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7077",
        "host",
        "host:",
        ":7077",
        "host:7077 ",
        "a b:1",
        "host:+1",
        "host:٣",
        "[]:1",
        "[host]:1",
        "h:1:2",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address of the form"):
        parse_address(text)


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_out_of_range_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match="a port is a number from 1 to 65535"):
        parse_address(f"host:{port}")


def test_port_zero_can_be_allowed() -> None:
    assert parse_address("127.0.0.1:0", lowest_port=0).port == 0


def test_a_bare_ipv6_address_is_told_about_brackets() -> None:
    with pytest.raises(ConfigError, match=r"'::1:7077' is not an address of the form \[IPv6\]:PORT"):
        parse_address("::1:7077")
