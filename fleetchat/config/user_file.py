"""The user's `fleet.toml`, as `fleetchat fleet add` and `remove` change it: nothing else ever does."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from fleetchat.config.address import parse_address
from fleetchat.config.files import TomlFile, read_toml
from fleetchat.config.load import peers_in
from fleetchat.config.peer_tables import add_peer, remove_peer, set_in_peer, unset_in_peers
from fleetchat.config.peers import PeerSettings
from fleetchat.config.remembered import write_private
from fleetchat.errors import ConfigError
from fleetchat.paths import unwritable
from fleetchat.spelling import nearest

FIRST_LINES = """\
# Your fleet. `fleetchat fleet add` and `fleetchat fleet remove` change the peers in this file, everything
# else is yours. Keys that are not here have the values of the shipped fleet.toml, which explains them all.
"""


def peers_of_file(path: Path) -> tuple[PeerSettings, ...]:
    """The peers that a file names; none when there is no file. Raises ConfigError."""
    return peers_in(read_toml(path)) if path.exists() else ()


def add_to_file(path: Path, address: str, *, name: str, spare: bool) -> tuple[PeerSettings, ...]:
    """Write one more peer; all peers of the file as they are then. Raises ConfigError.

    One that serves changes the cut: layers that were written for the others are taken out.
    """
    known = peers_of_file(path)
    refuse_known(known, address, name, path)
    peer: dict[str, str | bool] = {"address": address}
    if name:
        peer["name"] = name
    if spare:
        peer["spare"] = True
    text = _text_of(path) if path.exists() else FIRST_LINES
    try:
        edited = add_peer(text if spare else unset_in_peers(text, "layers"), peer)
    except ValueError as error:
        raise _not_edited(path, error) from error
    _refuse_wrong(path, edited)
    _write(path, edited)
    return peers_of_file(path)


def remove_from_file(path: Path, which: str) -> tuple[PeerSettings, tuple[PeerSettings, ...]]:
    """Take out the peer with that address or name; it and those that are left. Raises ConfigError.

    Without one that served, the layers that were written for the others do not make up the model any more:
    they are taken out too.
    """
    known = peers_of_file(path)
    found = [number for number, peer in enumerate(known) if which in (peer.name, title(peer))]
    if not found:
        names = [word for peer in known for word in (peer.name, title(peer)) if word]
        hint = f"it names {', '.join(title(peer) for peer in known)}" if known else "it names no peers"
        raise ConfigError(f"{path} names no peer {which!r}{nearest(which, names)}", hint=hint)
    if len(found) > 1:
        raise ConfigError(f"{path} names {len(found)} peers {which!r}", hint="remove the table by hand")
    try:
        edited = remove_peer(_text_of(path), found[0])
        if not known[found[0]].spare:
            edited = unset_in_peers(edited, "layers")
    except ValueError as error:
        raise _not_edited(path, error) from error
    _write(path, edited)
    return known[found[0]], peers_of_file(path)


def write_layers(path: Path, layers: Mapping[int, tuple[int, int]]) -> None:
    """Say of peers, by their numbers in the file, which layers they serve. Raises ConfigError."""
    try:
        text = _text_of(path)
        for number, (first, last) in layers.items():
            text = set_in_peer(text, number, "layers", f"{first}-{last}")
    except ValueError as error:
        raise _not_edited(path, error) from error
    _refuse_wrong(path, text)
    _write(path, text)


def title(peer: PeerSettings) -> str:
    """The address as it is written in the file."""
    return "local" if peer.address is None else str(peer.address)


def refuse_known(known: tuple[PeerSettings, ...], address: str, name: str, path: Path) -> None:
    """Raises ConfigError for a peer, or a name, that the file has already."""
    parsed = None if address == "local" else parse_address(address)
    for peer in known:
        if parsed is not None and peer.address == parsed:
            raise ConfigError(f"{path} names the peer {address} already")
        if name and peer.name == name:
            raise ConfigError(
                f"{path} has a peer of the name {name!r} already ({title(peer)})",
                hint="choose another --name",
            )


def _refuse_wrong(path: Path, edited: str) -> None:
    """What would be written must be readable: a wrong name or a local spare is refused before that."""
    import hashlib
    import tomllib

    document = tomllib.loads(edited.removeprefix("\ufeff"))
    peers_in(TomlFile(path, document, hashlib.sha256(edited.encode()).hexdigest()))


def _text_of(path: Path) -> str:
    """With its line ends and its byte order mark. `read_toml` has read it before: it is UTF-8."""
    return path.read_bytes().decode("utf-8")


def _write(path: Path, text: str) -> None:
    target = path.resolve()  # a link stays a link
    try:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        write_private(target, text.encode("utf-8"))
        if mode is not None:
            os.chmod(target, mode)
    except OSError as error:
        raise unwritable(path, error) from error


def _not_edited(path: Path, error: ValueError) -> ConfigError:
    return ConfigError(
        f"{path} was not changed: {error}",
        hint="change the peers in it by hand; fleet.toml of the installation shows how they are written",
    )
