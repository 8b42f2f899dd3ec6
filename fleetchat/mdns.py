"""Peers announce themselves on the local network, and a chat machine looks for them (mDNS, DNS-SD).

Needs the package zeroconf (`fleetchat[discover]`); static addresses work without it. What is announced is an
address, a port, a version and a name, never anything of a key; what is heard is believed only as a hint.
"""

from __future__ import annotations

import re
import secrets
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetchat import __version__
from fleetchat.errors import InputError
from fleetchat.ids import Address

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, Zeroconf

SERVICE = "_fleetchat._tcp.local."
MOST_FOUND = 64  # peers; a network that announces more is not believed
CLOSING = 2.0  # seconds for the farewell
_IDENTITY = secrets.token_hex(8)  # of this process
_PLAIN = re.compile(r"[^\w.+-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Found:
    """A peer as it announced itself; every text is plain."""

    name: str
    addresses: tuple[Address, ...]
    version: str
    identity: str = ""  # of the process: it may listen on several addresses


class Announcement:
    """Says in a thread of its own that a peer listens here, until it is closed. Never fails."""

    def __init__(self, hosts: Sequence[str], port: int) -> None:
        self._hosts, self._port = tuple(hosts), port
        self._zeroconf: Zeroconf | None = None
        self._thread = threading.Thread(target=self._announce, name="mdns", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take it back, as far as that is quick."""
        self._thread.join(CLOSING)
        if self._zeroconf is not None and not self._thread.is_alive():
            farewell = threading.Thread(target=self._say_farewell, name="mdns-end", daemon=True)
            farewell.start()
            farewell.join(CLOSING)

    def _say_farewell(self) -> None:
        assert self._zeroconf is not None
        with suppress(Exception):  # too slow, or the network is gone: nobody is to read of it
            self._zeroconf.close()

    def _announce(self) -> None:
        try:
            from zeroconf import ServiceInfo, Zeroconf

            name = plain(socket.gethostname().split(".")[0]) or "peer"
            unique = f"{name}-{secrets.token_hex(4)}"  # two machines may have the same name
            info = ServiceInfo(
                SERVICE,
                f"{unique}.{SERVICE}",
                port=self._port,
                parsed_addresses=list(self._hosts),
                properties={"name": name, "version": __version__, "id": _IDENTITY},
                server=f"{unique}.local.",
            )
            self._zeroconf = Zeroconf()
            self._zeroconf.register_service(info, allow_name_change=True)
        except Exception:  # no package, no network, no multicast: the peer serves all the same
            return


def is_available() -> bool:
    """Whether the package is installed."""
    from importlib.util import find_spec

    return find_spec("zeroconf") is not None


def browse(seconds: float) -> list[Found]:
    """Who announces itself within so many seconds. Raises InputError without the package."""
    if not is_available():
        raise InputError(
            "looking for peers on the network needs the package zeroconf",
            hint="python -m pip install 'fleetchat[discover]'; peers that you added are found without it",
        )
    from zeroconf import ServiceBrowser, Zeroconf

    listener = _Listener()
    try:
        zeroconf = Zeroconf()
    except OSError as error:
        raise InputError(f"this network cannot be searched: {error.strerror or error}") from error
    try:
        ServiceBrowser(zeroconf, SERVICE, listener)  # type: ignore[arg-type]
        threading.Event().wait(seconds)
        names = listener.names()[:MOST_FOUND]
        infos = [zeroconf.get_service_info(SERVICE, name, timeout=1000) for name in names]
        return merged([_found(info) for info in infos if info is not None and info.port])
    finally:
        zeroconf.close()


def merged(found: Sequence[Found]) -> list[Found]:
    """One entry a process, with all its addresses."""
    by_identity: dict[str, Found] = {}
    for number, one in enumerate(found):
        key = one.identity or str(number)
        known = by_identity.get(key)
        both = one.addresses if known is None else (*known.addresses, *one.addresses)
        by_identity[key] = replace(one, addresses=tuple(dict.fromkeys(both)))
    return list(by_identity.values())


def plain(text: str) -> str:
    """Letters, digits, dots, dashes: whatever came from the network."""
    return _PLAIN.sub("", text)[:64]


def _found(info: ServiceInfo) -> Found:
    told: dict[str, str] = {}
    for key in ("name", "version", "id"):
        value = (info.properties or {}).get(key.encode())
        told[key] = plain(value.decode("utf-8", "replace")) if isinstance(value, bytes) else ""
    addresses = [Address(host, info.port or 0) for host in info.parsed_addresses()]
    usable = [address for address in addresses if not address.host.lower().startswith("fe80")]
    return Found(
        told["name"], tuple(sorted(usable, key=lambda one: ":" in one.host)), told["version"], told["id"]
    )


class _Listener:
    """What zeroconf calls from its thread."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        with self._lock:
            return list(self._names)

    def add_service(self, zeroconf: Any, kind: str, name: str) -> None:
        with self._lock:
            if name not in self._names:
                self._names.append(name)

    def remove_service(self, zeroconf: Any, kind: str, name: str) -> None:
        with self._lock:
            if name in self._names:
                self._names.remove(name)

    def update_service(self, zeroconf: Any, kind: str, name: str) -> None:
        return
