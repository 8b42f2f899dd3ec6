"""Peers as the supervisor knows them, at addresses that never change; and an address without a peer."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from fleetchat.ids import Address


class FixedPeers:
    """Whoever dies is dialled again at the same address."""

    def __init__(self, addresses: Sequence[Address], spares: Sequence[Address] = ()) -> None:
        self.addresses = list(addresses)
        self._spares = list(spares)

    @property
    def spares(self) -> int:
        return len(self._spares)

    def is_embedded(self, stage: int) -> bool:
        return False

    def ended(self) -> list[int]:
        return []

    async def restart(self, stage: int) -> None:
        raise AssertionError("nothing is embedded here")

    def take_spare(self, stage: int, *, keep: bool) -> None:
        lost, self.addresses[stage] = self.addresses[stage], self._spares.pop(0)
        if keep:
            self._spares.append(lost)

    def set_spares(self, addresses: Iterable[Address]) -> None:
        self._spares = [address for address in addresses if address not in self.addresses]

    async def aclose(self) -> None:
        """Nothing was started."""


@contextmanager
def nobody_listens() -> Iterator[Address]:
    """An address of this machine that refuses, and that nobody else gets meanwhile."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.bind(("127.0.0.1", 0))
        yield Address(*held.getsockname())
