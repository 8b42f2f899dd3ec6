"""`fleetchat fleet key`, `add`, `remove` and `list`, as a stranger types them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleetchat.cli.main import main
from fleetchat.config import load
from fleetchat.fleet import greeting
from fleetchat.fleet.greeting import Greeting, greet
from fleetchat.ids import Address
from fleetchat.keys import read_key
from tests.fakes.peers import nobody_listens

OWN = """\
# mine
[fleet]
key_file = "fleet.key"   # the old one

[ui]
theme = "fleet-light"  # day
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration folder; the current one is empty."""
    for name in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"FLEETCHAT_{name}_DIR", str(tmp_path / name.lower()))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(greeting, "greet", everybody_answers)
    return tmp_path / "config"


async def everybody_answers(addresses: Sequence[Address], key: bytes | None) -> Greeting:
    return Greeting(addresses[0], True, "answers")


def test_a_key_is_made_once_and_never_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "key"]) == 0
    path = folder / "fleet.key"
    captured = capsys.readouterr()
    assert captured.out == f"{path}\n"
    key = read_key(path)
    assert key.hex() not in captured.err
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert main(["fleet", "key"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {path} is there already, and was not changed"
    assert read_key(path) == key


def test_a_key_may_lie_elsewhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "key", "my.key"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{Path.cwd() / 'my.key'}\n"
    assert str(folder / "fleet.key") in captured.err
    assert main(["fleet", "key", "no/../such/place\0"]) in (1, 2)


def test_peers_come_and_go_and_the_file_stays_what_it_was(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    path = folder / "fleet.toml"
    path.write_text(OWN, encoding="utf-8")
    path.chmod(0o644)
    main(["fleet", "key"])
    capsys.readouterr()
    assert main(["fleet", "add", "10.0.0.2:7077", "--name", "left"]) == 0
    assert main(["fleet", "add", "[fd00::3]:7077", "--spare"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"added 10.0.0.2:7077 to {path}: 1 stage",
        f"added [fd00::3]:7077 to {path}: 1 stage, 1 spare",
    ]
    assert captured.err == ""
    assert path.read_text(encoding="utf-8") == (
        f'{OWN}\n[[fleet.peers]]\naddress = "10.0.0.2:7077"\nname = "left"\n'
        '\n[[fleet.peers]]\naddress = "[fd00::3]:7077"\nspare = true\n'
    )
    assert path.stat().st_mode & 0o777 == 0o644
    assert load().fleet.mode == "peers"
    assert main(["fleet", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "stage 0   10.0.0.2:7077  left",
        "spare     [fd00::3]:7077",
    ]
    assert main(["fleet", "remove", "left"]) == 0
    assert main(["fleet", "remove", "[fd00::3]:7077"]) == 0
    assert path.read_text(encoding="utf-8") == OWN


def test_layers_in_the_file_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    (folder / "fleet.toml").write_text(
        '[[fleet.peers]]\naddress = "a:1"\nname = "desk"\nlayers = "0-17"\n'
        '[[fleet.peers]]\naddress = "local"\nlayers = "18-29"\n'
    )
    assert main(["fleet", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "stage 0   a:1  desk  layers 0-17",
        "stage 1   local  layers 18-29",
    ]


def test_a_peer_that_does_not_answer_is_written_with_a_note(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(greeting, "greet", greet)
    for more, path in (([], folder / "fleet.toml"), (["--fleet", "other.toml"], Path.cwd() / "other.toml")):
        with nobody_listens() as nobody:
            assert main(["fleet", "add", str(nobody), *more]) == 0
        captured = capsys.readouterr()
        assert captured.out == f"added {nobody} to {path}: 1 stage\n"
        option = f" --fleet {path}" if more else ""
        assert captured.err.splitlines()[-1] == (
            "note: it was added, but it does not answer: connection refused; start `fleetchat peer` there, "
            f"let its port through the firewall, or take it out of {path}: "
            f"`fleetchat fleet remove {nobody}{option}`"
        )


def test_a_new_file_is_the_users_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "add", "desk:7077"]) == 0
    path = folder / "fleet.toml"
    assert path.read_text(encoding="utf-8").startswith("# Your fleet. ")
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    missing = f"note: there is no key at {folder / 'fleet.key'}: copy it, or run `fleetchat fleet key`"
    assert capsys.readouterr().err.splitlines() == [missing]


@pytest.mark.parametrize("address", ["127.0.0.1:7077", "[::1]:7077", "localhost:7077"])
def test_peers_of_this_machine_need_no_key_beforehand(
    folder: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    assert main(["fleet", "add", address]) == 0
    assert capsys.readouterr().err == ""


def test_what_keeps_peers_from_being_used_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    (folder / "fleet.toml").write_text('[fleet]\nmode = "embedded"\n', encoding="utf-8")
    Path("fleet.toml").write_text("", encoding="utf-8")
    assert main(["fleet", "add", "local"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f'note: {folder / "fleet.toml"} sets mode = "embedded", so its peers are not used',
        f"note: in this folder the chat uses {Path.cwd() / 'fleet.toml'} instead",
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["add", "7077"], "'7077' is not an address of the form HOST:PORT"),
        (["add", "a:0"], "'a:0': a port is a number from 1 to 65535"),
        (["add", "local", "--spare"], "a local stage needs no spare"),
        (["add", "b:1", "--name", "x" * 65], "64"),
        (["add", "a:1"], "names the peer a:1 already"),
        (["add", "c:1", "--name", "desk"], "has a peer of the name 'desk' already (a:1)"),
        (["remove", "dsk"], "names no peer 'dsk'; the nearest is 'desk'"),
        (["key", "."], "is there already, and was not changed"),
        (["key", "nowhere/my.key"], str(Path("here", "nowhere"))),
        (["key", "no/where/my.key", "--tls"], str(Path("here", "no", "where"))),
        (["drop"], "there is no command 'drop'"),
        ([], "the following arguments are required: ACTION"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["fleet", "add", "a:1", "--name", "desk"])
    capsys.readouterr()
    assert main(["fleet", *arguments]) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert lines[0].startswith("error: ")
    assert text in lines[0]
    assert len(lines) <= 2


def test_a_file_with_inline_peers_is_not_touched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    path = folder / "fleet.toml"
    path.write_text('[fleet]\npeers = [{address = "a:1"}]\n', encoding="utf-8")
    for arguments in (["add", "b:1"], ["remove", "a:1"]):
        assert main(["fleet", *arguments]) == 2
        assert capsys.readouterr().err.startswith(f"error: {path} was not changed: ")
    assert path.read_text(encoding="utf-8") == '[fleet]\npeers = [{address = "a:1"}]\n'


def test_a_certificate_is_made_beside_the_key(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["fleet", "key"])
    capsys.readouterr()
    assert main(["fleet", "key", "--tls"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{folder / 'fleet.pem'}\n"
    assert captured.err.splitlines()[1] == "  fleetchat peer --listen 0.0.0.0:7077 --key-file FILE --tls"
    if os.name == "posix":
        assert stat.S_IMODE((folder / "fleet.pem").stat().st_mode) == 0o600
    assert main(["fleet", "key", "--tls"]) == 2
    assert main(["fleet", "key", "both.key", "--tls"]) == 0
    assert capsys.readouterr().out == f"{Path.cwd() / 'both.key'}\n{Path.cwd() / 'both.pem'}\n"
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["fleet", "key", "third.key", "--tls"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: making a certificate needs the package cryptography",
        "hint: python -m pip install 'fleetchat[tls]' (only on this machine: the others get a copy)",
    ]
    assert not Path("third.key").exists()
