"""Who fails to shake hands too often is not listened to for a while. Pure: times come from the caller.

A key of 256 bits cannot be guessed; what this keeps off is the load and the log of somebody who tries.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque

ALLOWED = 10  # failures of one address
WINDOW = 60.0  # seconds in which they count, and for which the address is then refused
MOST_ADDRESSES = 4096  # remembered at once; the oldest are forgotten


class Guard:
    """Failed handshakes by address; an IPv6 network of 64 bits counts as one address."""

    def __init__(self, *, allowed: int = ALLOWED, window: float = WINDOW, most: int = MOST_ADDRESSES) -> None:
        self._allowed, self._window, self._most = allowed, window, most
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def is_blocked(self, host: str, now: float) -> bool:
        """Whether a connection from there is to be closed unread."""
        failures = self._failures.get(_network(host))
        return failures is not None and len(failures) >= self._allowed and now - failures[-1] < self._window

    def failed(self, host: str, now: float) -> bool:
        """Note a failed handshake; True when the address is refused from now on."""
        network = _network(host)
        failures = self._failures.setdefault(network, deque(maxlen=self._allowed))
        self._failures.move_to_end(network)
        while failures and now - failures[0] >= self._window:
            failures.popleft()
        failures.append(now)
        if len(self._failures) > self._most:
            self._failures.popitem(last=False)
        return len(failures) >= self._allowed

    def succeeded(self, host: str) -> None:
        """Whoever has the key is welcome again."""
        self._failures.pop(_network(host), None)


def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
