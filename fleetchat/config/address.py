"""`HOST:PORT` as a person writes it."""

from __future__ import annotations

import re

from fleetchat.errors import ConfigError
from fleetchat.ids import Address

FORM = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[\w.-]+)):(?P<port>[0-9]{1,5})", re.ASCII
)
HIGHEST_PORT = 65535


def parse_address(text: str, *, lowest_port: int = 1) -> Address:
    """`127.0.0.1:7077`, `name:7077` or `[::1]:7077`. Port 0 ("any") is allowed with `lowest_port=0`.

    Raises ConfigError.
    """
    match = FORM.fullmatch(text)
    if match is None:
        form = "[IPv6]:PORT" if text.count(":") > 1 else "HOST:PORT"
        raise ConfigError(f"{text!r} is not an address of the form {form}")
    port = int(match["port"])
    if not lowest_port <= port <= HIGHEST_PORT:
        raise ConfigError(f"{text!r}: a port is a number from {lowest_port} to {HIGHEST_PORT}")
    return Address(match["ipv6"] or match["host"], port)
