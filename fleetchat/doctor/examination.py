"""All checks in order: what each needs, how long it took, and what is skipped after a failure."""

from __future__ import annotations

import locale
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fleetchat.doctor.finding import Finding, Status, fail, failure_of, ok, skipped
from fleetchat.errors import FleetchatError
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

LAST_REMEDY = "`fleetchat paths --logs --tail 20` shows what the parts of fleetchat noted"
REMEDIES = {  # where an error has no hint of its own
    "config": "correct it; the shipped fleet.toml (`fleetchat paths` shows where it is) has every key",
    "recipe": "correct the recipe, or choose another with recipe under [model]",
    "shards": "correct the recipe's [source]",
    "tokenizer": "build the shards again with `fleetchat shards build`",
}


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


@dataclass(slots=True)
class Examination:
    """Run it once. `begin` hears the name of each check, `report` its finding as soon as there is one."""

    setting: Setting
    begin: Callable[[str], None]
    report: Callable[[Finding], None]
    findings: list[Finding] = field(default_factory=list)
    _config: Config | None = None
    _recipe: Recipe | None = None
    _wanted: Wanted | None = None
    _build: Manifest | None = None
    _context: int = 0
    _key: bytes | None = None
    _format: ChatFormat | None = None

    def run(self) -> tuple[Finding, ...]:
        """All findings, in the order in which they were reported."""
        self._machine()
        self._model()
        self._resources()
        self._fleet()
        self._check("logs", self._logs)
        return tuple(self.findings)

    def _machine(self) -> None:
        self._check("Python", self._interpreter)
        self._check("packages", self._packages)
        self._check("OpenVINO", self._openvino)
        self._check("terminal", self._terminal)
        self._check("locale", self._locale)

    def _model(self) -> None:
        self._check("config", self._configuration)
        self._check("recipe", self._read_recipe, needs=("config",))
        self._check("shards", self._shards, needs=("recipe",))
        self._check("download", self._download, needs=("recipe",))
        self._check("tokenizer", self._tokenizer, needs=("recipe",), build=True)
        self._check("context", self._conversation, needs=("recipe",), build=True)

    def _resources(self) -> None:
        self._check("disk", self._disk)
        self._check("memory", self._memory, needs=("context",), build=True)

    def _fleet(self) -> None:
        self._check("key", self._read_key, needs=("config",))
        self._check("port", self._port)
        self._peers()
        needs = ("OpenVINO", "shards", "tokenizer", "context", "memory", "key", *self._of_peers())
        self._check("chain", self._chain, needs=needs, build=True)

    # --- how a check is run --------------------------------------------------------------------------

    def _check(
        self, name: str, check: Callable[[], Finding], *, needs: tuple[str, ...] = (), build: bool = False
    ) -> None:
        """Run a check unless something it needs has failed, or there is no build that it needs."""
        hindrance = self._hindrance(needs, build=build)
        if hindrance:
            self._note(skipped(name, f"not checked: {hindrance}"))
            return
        self.begin(name)
        started = time.perf_counter()
        found = self._guarded(name, check)
        self._note(replace(found, milliseconds=(time.perf_counter() - started) * 1000))

    def _guarded(self, name: str, check: Callable[[], Finding]) -> Finding:
        """A check that raises has found something too."""
        try:
            return check()
        except FleetchatError as error:
            return failure_of(name, error, REMEDIES.get(name, LAST_REMEDY))
        except ModuleNotFoundError as error:
            return fail(name, f"the package {error.name} is missing", f"python -m pip install {error.name}")
        except Exception as error:
            log = self.setting.log_error(error)
            return fail(
                name,
                f"the check itself failed: {type(error).__name__}: {error}",
                f"report it, this is a mistake of fleetchat{f'; the details are in {log}' if log else ''}",
            )

    def _hindrance(self, needs: tuple[str, ...], *, build: bool = False) -> str:
        """Why a check cannot run, the first cause first; empty when it can."""
        concerned = [finding for finding in self.findings if finding.name in needs]
        failed = [finding.name for finding in concerned if finding.status is Status.FAIL]
        skipped_too = [finding.name for finding in concerned if finding.status is Status.SKIPPED]
        if failed:
            return f"{failed[0]} failed"
        if build and self._build is None and self._recipe is not None:
            return "there are no shards to use"
        return f"{skipped_too[0]} was not checked" if skipped_too else ""

    def _note(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.report(finding)

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
        probed = (self.setting.probe or devices.probe)(threads)
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

        self._config = load(self.setting.fleet_file, self.setting.overrides)
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

        recipe, store = _there(self._recipe), self._store()
        works = self._hindrance(("OpenVINO",)) == ""
        self._wanted = Wanted(
            recipe=recipe,
            stages=_there(self._config).fleet.stages,
            source=source_identity(recipe, store),
            converter=current_converter(recipe) if works else None,
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

    def _build_needed(self) -> bool:
        """No build, or one that is damaged."""
        return self._build is None or bool(self._hindrance(("shards",)))

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
        return check_disk(folders, self.setting.free or free_bytes)

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
        from fleetchat.doctor.key import check_key
        from fleetchat.keys import KEY_FILE_NAME
        from fleetchat.paths import config_folder

        named = _there(self._config).fleet.key_file
        needed = any(peer.address is not None for peer in self._peer_specs())
        found, self._key = check_key(
            named or config_folder() / KEY_FILE_NAME, named=named is not None, needed=needed
        )
        return found

    def _port(self) -> Finding:
        import trio

        from fleetchat.doctor.port import check_port

        return trio.run(check_port, self.setting.listen, self._any_key())

    def _any_key(self) -> bytes:
        """The fleet's key; where there is none, one that nobody has."""
        return self._key or secrets.token_bytes(32)

    def _peers(self) -> None:
        """One finding a peer; none when all stages are embedded."""
        if self._config is None or self._config.fleet.mode == "embedded":
            return
        hindrance = self._hindrance(("key",))
        if hindrance:
            self._note(skipped("peers", f"not checked: {hindrance}"))
            return
        self.begin("peers")
        error = self._guarded("peers", self._ask_peers)
        if error.status is not Status.OK:
            self._note(error)

    def _ask_peers(self) -> Finding:
        import trio

        from fleetchat.doctor.peers import check_peers, questions

        options = self._options() if self._build is not None and self._context else None
        asked = questions(self._peer_specs(), options, self._any_key())
        trio.run(check_peers, asked, self._any_key(), self._note, self._rebuild())
        return ok("peers", "")

    def _of_peers(self) -> tuple[str, ...]:
        return tuple(finding.name for finding in self.findings if finding.name.startswith("peer"))

    def _options(self) -> FleetOptions:
        """As `fleet.configured.prepare_fleet` makes them, with nothing drafted."""
        from fleetchat.fleet.options import FleetOptions

        fleet = _there(self._config).fleet
        return FleetOptions(
            manifest=_there(self._build),
            store_root=self._store().root,
            peers=self._peer_specs(),
            precision=fleet.precision,
            kv="masked" if fleet.kv == "auto" else fleet.kv,
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
