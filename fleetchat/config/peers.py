"""`[[fleet.peers]]`: who serves the stages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fleetchat.config.address import parse_address
from fleetchat.config.kinds import Device, Flag, Kind, Text
from fleetchat.errors import ConfigError
from fleetchat.ids import Address
from fleetchat.spelling import nearest

LAYERS = re.compile(r"([0-9]{1,4})-([0-9]{1,4})", re.ASCII)
NAME_LIMIT = 64  # characters


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """One peer. `address` None is "local": a stage in a process of the chat."""

    address: Address | None
    name: str = ""
    device: str | None = None
    """Device of a local stage; a peer elsewhere states its own."""
    layers: tuple[int, int] | None = None
    """First and last layer, both served; None = as the cutter balances them."""
    spare: bool = False
    """Waits until another peer is lost."""


@dataclass(frozen=True)
class Peers:
    """The kind of `fleet.peers`: a list of tables."""

    def check(self, value: object, base: Path) -> tuple[PeerSettings, ...]:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise ValueError("must be written as [[fleet.peers]] tables")
        return tuple(_peer(number, item, base) for number, item in enumerate(value, start=1))

    def from_text(self, text: str) -> object:
        raise ValueError("can only be set in a file")


_KINDS: dict[str, Kind] = {
    "address": Text(),
    "name": Text(),
    "device": Device(),
    "layers": Text(),
    "spare": Flag(),
}


def _peer(number: int, table: dict[str, object], base: Path) -> PeerSettings:
    values = {}
    for key, value in table.items():
        if key not in _KINDS:
            raise ValueError(f"(the {_ordinal(number)}) has an unknown key {key!r}{nearest(key, _KINDS)}")
        try:
            values[key] = _KINDS[key].check(value, base)
        except ValueError as error:
            raise ValueError(f"(the {_ordinal(number)}): its {key} {error}") from error
    try:
        return _built(values)
    except (ValueError, ConfigError) as error:
        raise ValueError(f"(the {_ordinal(number)}) cannot be used: {error}") from error


def _built(values: dict[str, object]) -> PeerSettings:
    if "address" not in values:
        raise ValueError("it has no address")
    address = str(values.pop("address"))
    name = str(values.pop("name", ""))
    if len(name) > NAME_LIMIT or not name.isprintable():
        raise ValueError(f"a name has at most {NAME_LIMIT} printable characters")
    layers = _layers(str(values["layers"])) if "layers" in values else None
    if layers is not None and values.get("spare") is True:
        raise ValueError("a spare takes the layers of the peer that it stands in for")
    if address == "local" and values.get("spare") is True:
        raise ValueError("a local stage needs no spare: it is started again by itself")
    device = values.get("device")
    if device not in (None, "CPU") and address != "local":
        raise ValueError(f"it states its own device: start it with `fleetchat peer --device {device}`")
    return PeerSettings(
        address=None if address == "local" else parse_address(address),
        name=name,
        device=None if device is None else str(device),
        layers=layers,
        spare=values.get("spare") is True,
    )


def _layers(text: str) -> tuple[int, int]:
    match = LAYERS.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError(f"layers are written as 0-17, not {text!r}")
    return int(match[1]), int(match[2])


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ending}"
