"""Who imports whom, and what a command loads. Each guard is shown a mistake that it must see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.architecture.checkout import CHECKOUT, copy_package, run_python

HEAVY = {"numpy", "openvino", "openvino_genai", "textual", "tokenizers", "transformers", "trio"}
LINT = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True, no_logo=True))
"""
LOADED = """
import json, sys
from fleetchat.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as leaving:
    code = leaving.code
assert code == 0, code
print()
print(json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""
WITHOUT_POSIX = """
import builtins, importlib, pkgutil, signal, sys
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}
load = builtins.__import__
def load_as_on_windows(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if name in POSIX_ONLY and importer.split(".")[0] == "fleetchat":
        raise ImportError(f"{importer} imports {name}, which Windows does not have")
    return load(name, globals, locals, fromlist, level)
builtins.__import__ = load_as_on_windows
for name in ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGWINCH"):
    delattr(signal, name)
import fleetchat
for module in pkgutil.walk_packages(fleetchat.__path__, "fleetchat."):
    if module.name != "fleetchat.__main__":
        importlib.import_module(module.name)
"""


def loaded_by(root: Path, *arguments: str) -> set[str]:
    done = run_python(root, "-c", LOADED, *arguments)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_the_import_contracts_are_kept() -> None:
    done = run_python(CHECKOUT, "-c", LINT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "line", "contract"),
    [
        ("wire", "import trio", "wire knows bytes, arrays and ids BROKEN"),
        ("chat", "import fleetchat.fleet.telemetry", "chat is text and ids BROKEN"),
        ("peer", "import fleetchat.cutter.planted", "peer serves engines over links BROKEN"),
        ("fleet", "import openvino", "only engines, cutter and measurements touch OpenVINO BROKEN"),
        ("cutter", "import fleetchat.engine.interface", "only its self-check runs an engine BROKEN"),
    ],
)
def test_a_broken_contract_is_seen(planted: str, line: str, contract: str, tmp_path: Path) -> None:
    package = copy_package(tmp_path)
    (package / "cutter" / "planted.py").touch()
    (package / planted / "planted.py").write_text(f"def act() -> None:\n    {line}\n", encoding="utf-8")
    done = run_python(tmp_path, "-c", LINT)
    assert done.returncode == 1
    assert contract in " ".join(done.stdout.split())


@pytest.mark.parametrize("command", [["--help"], ["peer", "--help"], ["ask", "--help"], ["shards", "--help"]])
def test_help_loads_nothing_heavy(command: list[str]) -> None:
    assert loaded_by(CHECKOUT, *command) & HEAVY == set()


def test_a_heavy_import_in_a_command_is_seen(tmp_path: Path) -> None:
    package = copy_package(tmp_path)
    file = package / "cli" / "paths.py"
    file.write_text(file.read_text(encoding="utf-8") + "\nimport trio\n", encoding="utf-8")
    assert "trio" in loaded_by(tmp_path, "--help")


@pytest.mark.slow
def test_every_module_can_be_imported_without_posix() -> None:
    done = run_python(CHECKOUT, "-W", "ignore", "-c", WITHOUT_POSIX)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_posix_import_is_seen(tmp_path: Path) -> None:
    package = copy_package(tmp_path)
    (package / "aaa.py").write_text("from fcntl import flock\n", encoding="utf-8")
    done = run_python(tmp_path, "-W", "ignore", "-c", WITHOUT_POSIX)
    assert done.returncode == 1
    assert "fleetchat.aaa imports fcntl, which Windows does not have" in done.stderr
