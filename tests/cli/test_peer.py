from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetchat.child import child_command, child_environment
from fleetchat.cli.main import main
from fleetchat.cli.peer import announcement, find_key
from fleetchat.errors import InputError
from fleetchat.ids import Address
from fleetchat.keys import load_or_create_key
from fleetchat.peer import interfaces

posix_only = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")
DEADLINE = 30.0  # seconds; only a fault takes as long
KEY_LINE = "0f" * 32 + "\n"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"FLEETCHAT_{name}_DIR", str(tmp_path / name.lower()))
    return tmp_path


@contextmanager
def running(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        child_command(*arguments),
        env=child_environment() | options.pop("environment", {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.usefixtures("folders")
class TestTheKey:
    def test_without_a_key_file_only_this_machine_is_listened_to(self) -> None:
        with pytest.raises(InputError) as caught:
            find_key([Address("127.0.0.1", 7077), Address("0.0.0.0", 7077)], None)
        assert caught.value.message == (
            "0.0.0.0:7077 can be reached from other machines: name the fleet's key with --key-file"
        )
        assert caught.value.exit_code == 2

    def test_the_default_key_is_made_once(self, folders: Path) -> None:
        key, path = find_key([Address("127.0.0.1", 7077)], None)
        assert path == folders / "config" / "fleet.key"
        assert find_key([Address("::1", 0)], None) == (key, path)

    def test_a_named_key_opens_the_network(self, folders: Path) -> None:
        path = folders / "own.key"
        key = load_or_create_key(path)
        assert find_key([Address("0.0.0.0", 7077)], path) == (key, path)
        assert not (folders / "config").exists()


@pytest.mark.parametrize("bound", [Address("127.0.0.1", 7077), Address("::1", 7077)])
def test_a_peer_of_this_machine_says_what_to_type(bound: Address) -> None:
    assert announcement(bound, Path("fleet.key")) == [
        f"listening on {bound}",
        "only this machine reaches it; the key is fleet.key",
        "to use it, type:",
        f"  fleetchat fleet add {bound}",
    ]


def test_a_peer_on_one_network_names_its_address() -> None:
    assert announcement(Address("10.0.0.2", 7077), Path("fleet.key")) == [
        "listening on 10.0.0.2:7077",
        "other machines reach it at 10.0.0.2:7077",
        "the key is fleet.key; every machine of the fleet needs a copy of this file",
        "to use this peer, type on the chat machine:",
        "  fleetchat fleet add 10.0.0.2:7077",
    ]


@pytest.mark.parametrize(
    ("host", "others"),
    [
        ("0.0.0.0", ["10.9.9.2:7077 (eth1)", "10.9.9.3:7077 (eth1)"]),
        ("::", ["[fd00::2]:7077 (eth1)", "[fd00::3]:7077 (eth1)"]),
    ],
)
def test_a_peer_on_all_networks_shows_what_it_chose_and_what_else_there_is(
    host: str, others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = [
        "127.0.0.1",
        "10.9.9.1",
        "10.9.9.2",
        "10.9.9.3",
        "::1",
        "fe80::1",
        "fd00::1",
        "fd00::2",
        "fd00::3",
    ]
    monkeypatch.setattr(
        interfaces, "_own_hosts", lambda: [interfaces.Reachable(one, "eth1") for one in hosts]
    )
    monkeypatch.setattr(interfaces, "_outgoing_host", lambda version: hosts[1] if version == 4 else hosts[6])
    chosen = Address(hosts[1] if host == "0.0.0.0" else hosts[6], 7077)
    lines = announcement(Address(host, 7077), Path("k"))
    assert lines[1] == f"this machine is {chosen} (eth1); it has other addresses too: {', '.join(others)}"
    assert lines[-1] == f"  fleetchat fleet add {chosen}"


def test_its_owner_may_know_better() -> None:
    lines = announcement(Address("0.0.0.0", 7077), Path("k"), "desk.example")
    assert lines[1] == "other machines reach it at desk.example:7077"
    assert lines[-1] == "  fleetchat fleet add desk.example:7077"


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--listen", "7077"], "is not an address of the form HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "name the fleet's key with --key-file"),
        (["--key-file", "nowhere.key"], "there is no key file nowhere.key"),
        (["--device", "TPU"], "--device TPU: devices are CPU, GPU and NPU, with several also GPU.1"),
        (["--device", "NPU.9"], "there is no device NPU.9 on this machine: OpenVINO finds CPU"),
        (["--threads", "0"], "--threads must be at least 1, not 0"),
        (["--kv-cells", "-1"], "--kv-cells must be at least 1, not -1"),
        (["--threads", "two"], "--threads"),
        (["--cores", "a"], "--cores a: not a list of cores of this machine"),
        (["--listen", "no such host:1"], "is not an address"),
    ],
)
def test_wrong_usage_is_one_line_and_a_hint(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["peer", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0].startswith("error: ")
    assert text in lines[0]
    assert all(line.startswith("hint: ") for line in lines[1:])
    assert len(lines) <= 2


@pytest.mark.usefixtures("folders")
def test_a_port_in_use_is_a_failure_at_run_time(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["peer", "--listen", address]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert errors[0] == f"error: cannot listen on {address}: the port is in use"
    assert errors[1].startswith("hint: ")


def test_help_names_the_options_of_people_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["peer", "--help"])
    text = capsys.readouterr().out
    for option in ("--listen", "--key-file", "--device", "--threads", "--kv-cells", "--advertise", "--store"):
        assert option in text
    for option in ("--embedded", "--log", "--cores"):
        assert option not in text


@posix_only
@pytest.mark.slow
@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_peer_serves_until_it_is_told_to_leave(number: signal.Signals, code: int) -> None:
    with running("peer", "--listen", "127.0.0.1:0") as process:
        lines = [first_line(process) for _ in range(4)]
        port = int(lines[0].rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port)).close()
        process.send_signal(number)
        out, errors = process.communicate(timeout=DEADLINE)
        assert process.returncode == code
        assert out == ""
        assert lines[3] == f"  fleetchat fleet add 127.0.0.1:{port}\n"
        assert "Traceback" not in errors


@posix_only
@pytest.mark.slow
@pytest.mark.usefixtures("folders")
def test_it_imports_neither_textual_nor_transformers_nor_openvino() -> None:
    with running("peer", "--listen", "127.0.0.1:0", environment={"PYTHONPROFILEIMPORTTIME": "1"}) as process:
        assert first_line(process).startswith("listening on ")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE)
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in errors.splitlines()}
    assert "trio" in imported
    assert not imported & {"textual", "transformers", "tokenizers", "openvino", "torch", "openvino_genai"}


@pytest.mark.slow
@pytest.mark.usefixtures("folders")
def test_an_embedded_peer_speaks_json_and_ends_with_its_stdin(tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    with running("peer", "--embedded", "--threads", "1", "--log", str(log)) as process:
        assert process.stdin is not None
        process.stdin.write(KEY_LINE)
        process.stdin.flush()
        port = json.loads(first_line(process))["port"]
        socket.create_connection(("127.0.0.1", port)).close()
        if os.name == "posix":
            process.send_signal(signal.SIGINT)  # Ctrl+C in the terminal of the chat is not for it
        socket.create_connection(("127.0.0.1", port)).close()
        out, errors = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out, errors) == (0, "", "")


@pytest.mark.slow
@pytest.mark.usefixtures("folders")
def test_an_embedded_peer_says_why_it_did_not_start(tmp_path: Path) -> None:
    with running("peer", "--embedded", "--log", str(tmp_path / "stage.log")) as process:
        out, errors = process.communicate("no key\n", timeout=DEADLINE)
        assert process.returncode == 2
        assert json.loads(out)["exit"] == 2
        assert errors == ""
