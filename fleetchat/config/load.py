"""Which values are in force: command line > environment > file > program state > shipped file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetchat.config.files import TomlFile, read_toml
from fleetchat.config.kinds import Kind
from fleetchat.config.peers import PeerSettings
from fleetchat.config.remembered import is_confirmed, remember_confirmation
from fleetchat.config.settings import TABLES, Config
from fleetchat.errors import ConfigError
from fleetchat.paths import config_folder, shipped, state_folder
from fleetchat.spelling import nearest

FILE_NAME = "fleet.toml"
STATE_FILE_NAME = "settings.toml"
PREFIX = "FLEETCHAT_"
COMMAND_LINE = "command line"
ENVIRONMENT = "environment"

Confirm = Callable[[Path, tuple[str, ...]], bool]
"""Asks the user whether a `./fleet.toml` that names these peers may be used."""

Key = tuple[str, str]  # table and key


@dataclass(frozen=True, slots=True)
class Layer:
    """Checked values from one place."""

    origin: str
    values: dict[Key, object]


def load(
    fleet_file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    confirm: Confirm | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    `fleet_file` is what `--fleet` names. `overrides` has values of the command line under
    "table.key"; None means not given. `confirm` None means that nobody can be asked. Raises
    ConfigError.
    """
    shipped_file = read_toml(shipped(FILE_NAME))
    file = _file_in_use(fleet_file, confirm) or shipped_file
    layers = [
        _from_command_line(overrides or {}),
        _from_environment(os.environ if environment is None else environment),
        *([] if file is shipped_file else [_from_file(file)]),
        *_from_program_state(),
    ]
    return _built([*layers, _from_file(shipped_file)], layers, file.path)


def _file_in_use(fleet_file: Path | None, confirm: Confirm | None) -> TomlFile | None:
    """The first of --fleet, ./fleet.toml and the user's file; None = the shipped one."""
    if fleet_file is not None:
        return read_toml(fleet_file.expanduser())
    own = config_folder() / FILE_NAME
    here = Path.cwd() / FILE_NAME
    if here.is_file() and not (own.exists() and own.samefile(here)):
        file = read_toml(here)
        if _may_be_used(file, confirm):
            return file
    return read_toml(own) if own.exists() else None


def files_in_question(fleet_file: Path | None = None) -> tuple[Path, ...]:
    """The files of which `load` uses the first that is there, the shipped one left out."""
    if fleet_file is not None:
        return (fleet_file.expanduser(),)
    return Path.cwd() / FILE_NAME, config_folder() / FILE_NAME


def _may_be_used(file: TomlFile, confirm: Confirm | None) -> bool:
    """A file that lies in a strange folder must not send the user's chats to strange peers."""
    peers = peers_in(file)
    if not peers or is_confirmed(file):
        return True
    if confirm is None:
        raise ConfigError(
            f"{file.path} names peers and was not confirmed yet",
            hint=f"to use it, say so: --fleet .{os.sep}{FILE_NAME}",
        )
    if not confirm(file.path, tuple(_title(peer) for peer in peers)):
        return False
    with suppress(OSError):  # confirmed all the same; the user is asked again next time
        remember_confirmation(file)
    return True


def peers_in(file: TomlFile) -> tuple[PeerSettings, ...]:
    """The peers that a file names. Raises ConfigError, also for what else is wrong in it."""
    peers = _from_file(file).values.get(("fleet", "peers"), ())
    assert isinstance(peers, tuple)
    return peers


def mode_in(file: TomlFile) -> str | None:
    """The mode that a file sets."""
    mode = _from_file(file).values.get(("fleet", "mode"))
    return None if mode is None else str(mode)


def _title(peer: PeerSettings) -> str:
    address = "local" if peer.address is None else str(peer.address)
    return f"{peer.name} ({address})" if peer.name else address


def _from_command_line(overrides: Mapping[str, object]) -> Layer:
    values = {}
    for name, value in overrides.items():
        if value is not None:
            table, key = name.split(".")
            field = _fields(table)[key]
            option = field.metadata["option"] or f"--{key.replace('_', '-')}"
            values[table, key] = _checked(field, value, Path.cwd(), f"{COMMAND_LINE}: {option}")
    return Layer(COMMAND_LINE, values)


def _from_environment(environment: Mapping[str, str]) -> Layer:
    known = {f"{PREFIX}{table}_{key}".upper(): (table, key) for table in TABLES for key in _fields(table)}
    values = {}
    for name, text in environment.items():
        if name in known:
            table, key = known[name]
            field = _fields(table)[key]
            origin = f"environment variable {name}"
            try:
                value = field.metadata["kind"].from_text(text)
            except ValueError as error:
                raise ConfigError(f"{origin} {error}") from error
            values[table, key] = _checked(field, value, Path.cwd(), origin)
        elif name.startswith(PREFIX):
            _refuse_misspelt(name, known)
    return Layer(ENVIRONMENT, values)


def _refuse_misspelt(name: str, known: Iterable[str]) -> None:
    """Other FLEETCHAT_ variables are not ours to judge, unless they look like a setting."""
    of_a_table = any(name.startswith(f"{PREFIX}{table.upper()}_") for table in TABLES)
    suggestion = nearest(name, known, cutoff=0.5 if of_a_table else 0.9)
    if of_a_table or suggestion:
        raise ConfigError(f"environment variable {name} names no setting{suggestion}")


def _from_program_state() -> list[Layer]:
    """What `fleetchat` wrote by itself; never in the user's file."""
    path = state_folder() / STATE_FILE_NAME
    return [_from_file(read_toml(path))] if path.exists() else []


def _from_file(file: TomlFile) -> Layer:
    values: dict[Key, object] = {}
    for table, content in file.document.items():
        if table not in TABLES:
            if isinstance(content, dict):
                raise ConfigError(f"{file.path}: there is no table [{table}]{nearest(table, TABLES)}")
            raise ConfigError(
                f"{file.path}: {table} stands in no table; every setting belongs to one, as [model]"
            )
        if not isinstance(content, dict):
            raise ConfigError(f"{file.path}: {table} must be a table: [{table}]")
        fields = _fields(table)
        for key, value in content.items():
            if key not in fields:
                raise ConfigError(f"{file.path}: [{table}] has no key {key!r}{_elsewhere(key, fields)}")
            origin = f"{file.path}: {key} in [{table}]"
            values[table, key] = _checked(fields[key], value, file.path.absolute().parent, origin)
    return Layer(str(file.path), values)


def _elsewhere(key: str, fields: Iterable[str]) -> str:
    """The end of the message: which table has the key, else the nearest of this one."""
    owners = [table for table in TABLES if key in _fields(table)]
    return f"; it belongs to [{owners[0]}]" if owners else nearest(key, fields)


def _fields(table: str) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(TABLES[table])}


def _checked(field: dataclasses.Field[Any], value: object, base: Path, origin: str) -> object:
    kind: Kind = field.metadata["kind"]
    try:
        return kind.check(value, base)
    except (ValueError, RuntimeError) as error:  # RuntimeError: `~` of an unknown user
        raise ConfigError(f"{origin} {error}") from error


def _built(layers: list[Layer], chosen: list[Layer], file: Path) -> Config:
    """`layers` from the strongest to the shipped one; `chosen` without the shipped one."""
    values: dict[Key, Any] = {}
    for layer in reversed(layers):
        values.update(layer.values)
    _settle_mode(values, chosen)
    tables = {
        table: settings(**{key: value for (owner, key), value in values.items() if owner == table})
        for table, settings in TABLES.items()
    }
    return Config(**tables, file=file, recipe_place=_place(chosen, "model", "recipe"))


def _chosen_by(chosen: list[Layer], table: str, key: str) -> Layer | None:
    """The strongest layer that has the key."""
    return next((layer for layer in chosen if (table, key) in layer.values), None)


def _place(chosen: list[Layer], table: str, key: str) -> str:
    """Where a value comes from, as errors name it: a file and its table, an option, a variable."""
    layer = _chosen_by(chosen, table, key)
    if layer is None:
        return f"{key} in [{table}]"
    if layer.origin == COMMAND_LINE:
        return f"{COMMAND_LINE}: {_fields(table)[key].metadata['option'] or '--' + key.replace('_', '-')}"
    if layer.origin == ENVIRONMENT:
        return f"environment variable {PREFIX}{table.upper()}_{key.upper()}"
    return f"{layer.origin}: {key} in [{table}]"


def _settle_mode(values: dict[Key, Any], chosen: list[Layer]) -> None:
    """Peers imply `mode = "peers"` unless somebody set the mode; their number is the number of stages."""
    peers: tuple[PeerSettings, ...] = values.get(("fleet", "peers"), ())
    if peers and not any(("fleet", "mode") in layer.values for layer in chosen):
        values["fleet", "mode"] = "peers"
    if values["fleet", "mode"] != "peers":
        return
    serving = sum(not peer.spare for peer in peers)
    if not serving:
        named = "only spares are named" if peers else "no peer is named"
        raise ConfigError(
            f"{_place(chosen, 'fleet', 'mode' if _chosen_by(chosen, 'fleet', 'mode') else 'peers')}: "
            f'the mode is "peers", but {named}',
            hint='name them in [[fleet.peers]] tables, or set mode = "embedded"',
        )
    for layer in chosen:
        asked = layer.values.get(("fleet", "stages"), serving)
        if layer.origin in {COMMAND_LINE, ENVIRONMENT} and asked != serving:
            raise ConfigError(f"{layer.origin}: {asked} stages are asked for, but {serving} peers are named")
    values["fleet", "stages"] = serving
