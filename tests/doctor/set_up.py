"""A user's set-up on the tiny model, and the doctor as a process of its own that looks at it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.doctor.finding import Finding, Status

CHECKOUT = Path(__file__).parents[2]
RECIPE = 'title = "Tiny"\n[source]\nkind = "path"\npath = "../model"\n'
UNSET = ("COLUMNS", "LINES", "LC_ALL", "LC_CTYPE", "NO_COLOR", "PIP_NO_INDEX")


@dataclass(frozen=True)
class Outcome:
    """`document` is what `--json` prints."""

    code: int
    document: dict[str, Any]

    def __getitem__(self, name: str) -> Finding:
        """The finding of a check."""
        (found,) = [one for one in self.document["findings"] if one["name"] == name]
        return Finding(
            name,
            Status(found["status"]),
            found["text"],
            found["remedy"],
            tuple(found["details"]),
            found["milliseconds"],
        )

    @property
    def failures(self) -> list[str]:
        """Names; each must say what to do."""
        failed = [one for one in self.document["findings"] if one["status"] == "fail"]
        assert all(one["remedy"] for one in failed)
        return [one["name"] for one in failed]


@dataclass(frozen=True)
class SetUp:
    """Everything below `folder`: config/fleet.toml, config/tiny.toml, model/, cache/shards/, state/."""

    folder: Path

    @property
    def store(self) -> Store:
        return Store(self.folder / "cache" / "shards")

    @property
    def build(self) -> Manifest:
        (manifest,) = self.store.builds()
        return manifest

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("FLEETCHAT_") and name not in UNSET
        }
        folders = {
            f"FLEETCHAT_{name.upper()}_DIR": str(self.folder / name) for name in ("config", "state", "cache")
        }
        folders["FLEETCHAT_FAST_SETTINGS"] = "default"
        return {**inherited, **folders, "LANG": "C.UTF-8", "PYTHONPATH": str(CHECKOUT), **(more or {})}

    def configure(self, text: str) -> None:
        """Write the user's fleet.toml."""
        (self.folder / "config").mkdir(exist_ok=True)
        (self.folder / "config" / "fleet.toml").write_text(text, encoding="utf-8")

    def configure_peers(self, key_file: Path, *addresses: str) -> None:
        peers = "".join(f'[[fleet.peers]]\naddress = "{address}"\n' for address in addresses)
        recipe = f"[model]\nrecipe = '{self.folder / 'config' / 'tiny.toml'}'\n"
        self.configure(f"{recipe}[fleet]\nkey_file = '{key_file}'\n{peers}")

    def process(self, *arguments: str, environment: Mapping[str, str] | None = None, **pipes: Any) -> Any:
        command = [sys.executable, "-m", "fleetchat", *arguments]
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment(environment), **given)

    def examine(self, *arguments: str, environment: Mapping[str, str] | None = None, **pipes: Any) -> Outcome:
        """Run `fleetchat doctor --json`."""
        process = self.process("doctor", "--json", *arguments, environment=environment, **pipes)
        out, err = process.communicate(timeout=170)
        assert b"Traceback" not in (err or b"")
        return Outcome(process.returncode, json.loads(out))

    @contextmanager
    def peer(self, key_file: Path) -> Iterator[str]:
        """A real `fleetchat peer` on the store of this set-up; yields its address."""
        process = self.process(
            "peer", "--listen", "127.0.0.1:0", "--key-file", str(key_file), "--kv-cells", "40000"
        )
        with process:
            try:
                yield process.stdout.readline().decode().strip().removeprefix("listening on ")
            finally:
                process.terminate()
                process.communicate(timeout=10)

    def copy(self, target: Path) -> SetUp:
        shutil.copytree(self.folder, target, dirs_exist_ok=True)
        return SetUp(target).using_own_recipe()

    def using_own_recipe(self) -> SetUp:
        self.configure(f"[model]\nrecipe = '{self.folder / 'config' / 'tiny.toml'}'\n")
        return self


def fake_openvino(folder: Path, source: str) -> dict[str, str]:
    """Variables with which every child process finds this in place of OpenVINO."""
    package = folder / "fake" / "openvino"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(source, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join((str(CHECKOUT), str(folder / "fake")))}
