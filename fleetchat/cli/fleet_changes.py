"""Changes of the fleet that are asked for in the chat: written into the file that the chat follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from fleetchat.app.backend import ProposedCut
from fleetchat.config import Config, load, parse_address
from fleetchat.config.load import FILE_NAME, files_in_question
from fleetchat.config.user_file import (
    add_to_file,
    peers_of_file,
    refuse_known,
    remove_from_file,
    title,
    write_layers,
)
from fleetchat.errors import InputError, PeerUnreachable
from fleetchat.fleet.configured import key_here
from fleetchat.fleet.following import ConfigSource
from fleetchat.fleet.greeting import greet
from fleetchat.fleet.live import LiveReport
from fleetchat.fleet.placement import Load
from fleetchat.fleet.rebalance import propose
from fleetchat.fleet.shapes import find_shape
from fleetchat.ids import Address
from fleetchat.paths import config_folder, shipped


def propose_cut(config: Config, report: LiveReport | None) -> ProposedCut:
    """What `fleet plan --rebalance` says. Raises InputError."""
    if config.fleet.mode != "peers":
        raise InputError("all stages run on this machine: there is nothing to balance between machines")
    if report is None:
        raise InputError("too little was measured yet: let a reply or two be written, then ask again")
    proposal = propose(Load(find_shape(config.model.recipe)), report)
    return ProposedCut(proposal.lines, proposal.then if proposal.worthwhile else ())


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Writes into the file that the chat follows. `source` reads what is in it now. Raises FleetchatError."""

    source: ConfigSource

    def write_cut(self, cut: tuple[tuple[int, int], ...]) -> str:
        return _write_cut(self.source.read(), cut)

    def add_peer(self, address: str, name: str) -> str:
        return _add_peer(self.source.read(), address, name)

    def remove_peer(self, which: str) -> str:
        return _remove_peer(self.source.read(), which)


def config_source(fleet_file: Path | None, overrides: Mapping[str, object], config: Config) -> ConfigSource:
    """What the chat follows: the files of which one was used for `config`.

    Nobody is asked again: a `./fleet.toml` that was confirmed and then changed is refused until the next
    start, one that was declined stays unused.
    """
    here = Path.cwd() / FILE_NAME
    confirm = None if config.file == here else lambda path, peers: False

    def read() -> Config:
        return load(fleet_file, overrides, confirm=confirm)

    return ConfigSource(read, lambda: files_in_question(fleet_file))


def _write_cut(config: Config, cut: tuple[tuple[int, int], ...]) -> str:
    serving = [number for number, peer in enumerate(config.fleet.peers) if not peer.spare]
    if len(serving) != len(cut):
        raise InputError("the fleet has other peers by now: ask again")
    write_layers(config.file, dict(zip(serving, cut, strict=True)))
    return f"Written to {config.file}; the fleet moves to it"


def _add_peer(config: Config, address: str, name: str) -> str:
    path = _file(config)
    if address != "local":
        refuse_known(peers_of_file(path), address, name, path)
        _refuse_absent(config, parse_address(address))
    peers = add_to_file(path, address, name=name, spare=False)
    serving = sum(not peer.spare for peer in peers)
    return f"Added {address} to {path}; the fleet moves to {serving} stage{'' if serving == 1 else 's'}"


def _refuse_absent(config: Config, address: Address) -> None:
    """A chat that serves moves to nobody who does not answer now. Raises PeerUnreachable."""
    greeting = trio.run(greet, (address,), key_here(config))
    if not greeting.answers:
        hint = greeting.hint or "start `fleetchat peer` there first"
        raise PeerUnreachable(f"{address} was not added: {greeting.reason}", hint=hint)


def _remove_peer(config: Config, which: str) -> str:
    path = _file(config)
    removed, _left = remove_from_file(path, which)
    return f"Removed {title(removed)} from {path}; the fleet moves to those that are left"


def _file(config: Config) -> Path:
    """The user's file: the shipped one is never written."""
    return config_folder() / FILE_NAME if config.file == shipped(FILE_NAME) else config.file
