"""Under which addresses other machines reach this one."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

_OUTSIDE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # for documentation: nobody has them


@dataclass(frozen=True, slots=True)
class Reachable:
    """A host as others write it, and the interface that has it (empty when it is not known)."""

    host: str
    interface: str = ""

    def __str__(self) -> str:
        return f"{self.host} ({self.interface})" if self.interface else self.host


def reachable_hosts(bound: str) -> list[Reachable]:
    """What others may call a peer that listens on `bound`; what they most likely reach comes first."""
    if not is_unspecified(bound):
        return [Reachable(bound)]
    version = 6 if ":" in bound else 4
    found = [one for one in _own_hosts() if ipaddress.ip_address(one.host).version == version]
    return ordered(found, _outgoing_host(version)) or [Reachable(socket.gethostname())]


def ordered(found: Sequence[Reachable], outgoing: str | None) -> list[Reachable]:
    """The host of the default route first; what only this machine or one cable can use is left out."""
    usable = [one for one in found if _is_usable(one.host)]
    return sorted(usable, key=lambda one: one.host != outgoing)


def is_unspecified(host: str) -> bool:
    """Whether it stands for all addresses of the machine."""
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. Unknown names are taken for reachable ones."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_usable(host: str) -> bool:
    address = ipaddress.ip_address(host)
    return not (address.is_loopback or address.is_link_local or address.is_multicast)


def _own_hosts() -> list[Reachable]:
    import ifaddr

    found = []
    for adapter in ifaddr.get_adapters():
        for entry in adapter.ips:
            host = entry.ip if isinstance(entry.ip, str) else entry.ip[0]
            found.append(Reachable(host.split("%")[0], adapter.nice_name))
    return found


def _outgoing_host(version: int) -> str | None:
    """The address that the default route would use. Sends nothing: only a route is looked up."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_OUTSIDE[family], 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None
