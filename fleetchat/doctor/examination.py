"""All checks in order, and what each of them needs to know of those before it."""

from __future__ import annotations

import locale
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fleetchat.doctor.checklist import Checklist
from fleetchat.doctor.finding import Finding, Status, ok, skipped
from fleetchat.ids import Address

if TYPE_CHECKING:
    from fleetchat.chat.conversation import ChatFormat
    from fleetchat.config import Config
    from fleetchat.cutter.manifest import Manifest
    from fleetchat.cutter.recipe import Recipe
    from fleetchat.cutter.store import Store
    from fleetchat.doctor.builds import Wanted
    from fleetchat.doctor.devices import Probed
    from fleetchat.fleet.options import FleetOptions, PeerSpec

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is examined. `overrides` are values of the command line as `fleetchat.config.load` takes them.

    `listen` is the port that a peer takes by default. `probe` and `free` are borders to the machine that
    tests replace; `log_error` keeps the traceback of a mistake of ours, and says where.
    """

    fleet_file: Path | None
    overrides: Mapping[str, object]
    listen: Address
    probe: Callable[[int], Probed] | None = None
    free: Callable[[Path], int] | None = None
    log_error: Callable[[BaseException], Path | None] = lambda error: None


class Examination:
    """Run it once. `begin` and `report` are those of `Checklist`."""

    def __init__(
        self, setting: Setting, begin: Callable[[str], None], report: Callable[[Finding], None]
    ) -> None:
        self._setting = setting
        self._list = Checklist(begin, report, setting.log_error)
        self._config: Config | None = None
        self._recipe: Recipe | None = None
        self._wanted: Wanted | None = None
        self._build: Manifest | None = None
        self._context = 0
        self._key: bytes | None = None
        self._format: ChatFormat | None = None

    def run(self) -> tuple[Finding, ...]:
        """All findings, in the order in which they were reported."""
        self._machine()
        self._model()
        self._resources()
        self._fleet()
        self._list.check("logs", self._logs)
        return tuple(self._list.findings)

    def _machine(self) -> None:
        check = self._list.check
        check("Python", self._interpreter)
        check("packages", self._packages)
        check("OpenVINO", self._openvino)
        check("terminal", self._terminal)
        check("locale", self._locale)

    def _model(self) -> None:
        check = self._list.check
        check("config", self._configuration)
        check("recipe", self._read_recipe, needs=("config",))
        check("shards", self._shards, needs=("recipe",))
        check("download", self._download, needs=("recipe",))
        check("tokenizer", self._tokenizer, needs=("recipe",), missing=self._no_build())
        check("context", self._conversation, needs=("recipe",), missing=self._no_build())

    def _resources(self) -> None:
        check = self._list.check
        check("disk", self._disk)
        check("memory", self._memory, needs=("context",), missing=self._no_build())

    def _fleet(self) -> None:
        check = self._list.check
        check("key", self._read_key, needs=("config",))
        check("port", self._port)
        self._peers()
        needs = ("OpenVINO", "shards", "tokenizer", "context", "memory", "key", *self._of_peers())
        check("chain", self._chain, needs=needs, missing=self._no_build() or self._lacking())

    # --- the machine ---------------------------------------------------------------------------------

    def _interpreter(self) -> Finding:
        from fleetchat.doctor.interpreter import check_interpreter

        return check_interpreter()

    def _packages(self) -> Finding:
        from fleetchat.doctor.packages import check_packages, required

        return check_packages(required())

    def _openvino(self) -> Finding:
        from fleetchat.doctor import devices
        from fleetchat.fleet.options import available_cores

        threads = max(1, available_cores() // 2)
        probed = (self._setting.probe or devices.probe)(threads)
        return devices.check_devices(probed, devices.cpu_features(devices.read_cpuinfo()), available_cores())

    def _terminal(self) -> Finding:
        from fleetchat.doctor.terminal import check_terminal, terminal_size

        size = terminal_size(os.environ)
        return check_terminal(size, os.environ, windows=sys.platform == "win32")

    def _locale(self) -> Finding:
        from fleetchat.doctor.encoding import check_encoding

        return check_encoding(locale.getencoding(), os.environ, platform=sys.platform)

    # --- the model -----------------------------------------------------------------------------------

    def _configuration(self) -> Finding:
        from fleetchat.config import load
        from fleetchat.doctor.configuration import describe_configuration

        self._config = load(self._setting.fleet_file, self._setting.overrides)
        return describe_configuration(self._config, os.environ)

    def _read_recipe(self) -> Finding:
        from fleetchat.cutter.recipe import find_recipe
        from fleetchat.doctor.recipe import check_recipe

        self._recipe = find_recipe(_there(self._config).model.recipe)
        return check_recipe(self._recipe)

    def _shards(self) -> Finding:
        from fleetchat.doctor.builds import (
            Wanted,
            check_builds,
            current_converter,
            find_wanted,
            source_identity,
        )
        from fleetchat.fleet.configured import layers_of

        recipe, store = _there(self._recipe), self._store()
        works = self._list.hindrance(("OpenVINO",)) == ""
        self._wanted = Wanted(
            recipe=recipe,
            stages=_there(self._config).fleet.stages,
            source=source_identity(recipe, store),
            converter=current_converter(recipe) if works else None,
            layers=layers_of(_there(self._config)),
        )
        self._build = find_wanted(store, self._wanted)
        return check_builds(store, self._wanted, self._build)

    def _download(self) -> Finding:
        from fleetchat.doctor.download import check_download, is_kept

        recipe = _there(self._recipe)
        return check_download(recipe, needed=self._build_needed(), kept=is_kept(recipe, self._store()))

    def _tokenizer(self) -> Finding:
        from fleetchat.doctor.tokenizer import check_tokenizer, load_format

        build = _there(self._build)
        self._format = load_format(self._store().folder(build.build_key), build)
        return check_tokenizer(self._format, build, self._rebuild())

    def _conversation(self) -> Finding:
        from fleetchat.fleet.configured import context_of

        build = _there(self._build)
        self._context = context_of(_there(self._config), _there(self._recipe), build)
        return ok(
            "context", f"{self._context:,} tokens a conversation; the model was made for {build.context:,}"
        )

    def _store(self) -> Store:
        from fleetchat.cutter.store import Store
        from fleetchat.paths import store_folder

        return Store(store_folder())

    def _no_build(self) -> str:
        """Why what needs a build cannot be checked; empty when there is one."""
        return "" if self._build or self._recipe is None else "there are no shards to use"

    def _build_needed(self) -> bool:
        """No build, or one that is damaged."""
        return self._build is None or bool(self._list.hindrance(("shards",)))

    def _rebuild(self) -> str:
        return self._wanted.command if self._wanted else "fleetchat shards build RECIPE --stages N"

    # --- resources -----------------------------------------------------------------------------------

    def _disk(self) -> Finding:
        from fleetchat import paths
        from fleetchat.doctor.disk import check_disk, free_bytes, space_for_build
        from fleetchat.doctor.download import is_kept

        build = 0
        if self._recipe is not None and self._build_needed():
            build = space_for_build(self._recipe, fetched=is_kept(self._recipe, self._store()))
        folders = {paths.store_folder(): build, paths.state_folder(): 0, paths.config_folder(): 0}
        return check_disk(folders, self._setting.free or free_bytes)

    def _memory(self) -> Finding:
        from fleetchat.doctor.memory import check_memory
        from fleetchat.engine.memory import available_memory

        local = [index for index, peer in enumerate(self._peer_specs()) if peer.address is None]
        return check_memory(
            _there(self._build),
            local,
            precision=_there(self._config).fleet.precision,
            context=self._context,
            available=available_memory(),
        )

    # --- the fleet -----------------------------------------------------------------------------------

    def _peer_specs(self) -> tuple[PeerSpec, ...]:
        from fleetchat.fleet.configured import peers_of

        return peers_of(_there(self._config))

    def _read_key(self) -> Finding:
        from fleetchat.certificates import certificate_file, check_certificate
        from fleetchat.doctor.key import check_key
        from fleetchat.keys import KEY_FILE_NAME, FleetKey
        from fleetchat.paths import config_folder

        named = _there(self._config).fleet.key_file
        needed = any(peer.address is not None for peer in self._peer_specs())
        found, self._key = check_key(
            named or config_folder() / KEY_FILE_NAME, named=named is not None, needed=needed
        )
        if self._key is not None and _there(self._config).fleet.tls:
            path = named or config_folder() / KEY_FILE_NAME
            self._key = FleetKey(self._key, check_certificate(certificate_file(path)))
        return found

    def _port(self) -> Finding:
        import trio

        from fleetchat.doctor.port import check_port

        return trio.run(check_port, self._setting.listen, self._any_key())

    def _any_key(self) -> bytes:
        """The fleet's key; where there is none, one that nobody has."""
        return self._key or secrets.token_bytes(32)

    def _peers(self) -> None:
        """One finding a peer; none when all stages are embedded."""
        if self._config is None or self._config.fleet.mode == "embedded":
            return
        hindrance = self._list.hindrance(("key",))
        if hindrance:
            self._list.note(skipped("peers", f"not checked: {hindrance}"))
            return
        self._list.begin("peers")
        error = self._list.guarded("peers", self._ask_peers)
        if error.status is not Status.OK:
            self._list.note(error)

    def _ask_peers(self) -> Finding:
        import trio

        from fleetchat.doctor.peers import check_peers, questions

        options = self._options() if self._build is not None and self._context else None
        asked = questions(self._peer_specs(), options, self._any_key())
        trio.run(check_peers, asked, self._any_key(), self._list.note, self._rebuild())
        return ok("peers", "")

    def _of_peers(self) -> tuple[str, ...]:
        return tuple(finding.name for finding in self._list.findings if finding.name.startswith("peer"))

    def _lacking(self) -> str:
        """Opening the chain would send the shards, and nothing is changed here."""
        names = self._of_peers()
        lacks = [one.name for one in self._list.findings if one.name in names and one.status is Status.WARN]
        return f"{lacks[0]} does not have its shard yet" if lacks else ""

    def _options(self) -> FleetOptions:
        """As `fleet.configured.prepare_fleet` makes them, with nothing drafted."""
        from fleetchat.fleet.options import FleetOptions

        fleet = _there(self._config).fleet
        return FleetOptions(
            manifest=_there(self._build),
            store_root=self._store().root,
            peers=self._peer_specs(),
            precision=fleet.precision,
            kv=fleet.kv,
            context=self._context,
            threads=fleet.threads,
            key=self._key,
            kv_cells=fleet.kv_cells,
        )

    def _chain(self) -> Finding:
        import trio

        from fleetchat.doctor.chain import check_chain
        from fleetchat.paths import log_folder

        return trio.run(check_chain, self._options(), _there(self._format), self._any_key(), log_folder())

    def _logs(self) -> Finding:
        from fleetchat.doctor.logs import check_logs
        from fleetchat.paths import log_folder

        return check_logs(log_folder())


def _there(value: Value | None) -> Value:
    """What an earlier check has found; `needs` saw to it."""
    assert value is not None
    return value
