"""`fleetchat fleet plan`, as a stranger types it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleetchat.cli.main import main
from fleetchat.fleet import greeting, measuring
from fleetchat.fleet.greeting import Greeting
from fleetchat.fleet.measuring import PeerMeasure
from fleetchat.fleet.options import PeerSpec
from fleetchat.fleet.placement import PeerFacts
from fleetchat.ids import Address
from fleetchat.wire.frames import Measured


@pytest.fixture(autouse=True)
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


def test_on_paper_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "plan", "--model", "llama-3.3-70b", "--peers", "4x32GB"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert lines[0] == "llama-3.3-70b: 80 layers, 70.55 billion weights"
    assert lines[1].split() == (
        ["stage", "peer", "layers", "weights", "KV", "needs", "may", "use", "one", "token", "prompt"]
    )
    assert lines[2].startswith("    0  pc1   0-19     9.5 GB  680 MB  12.2 GB  22.4 GB")
    assert [line.split()[2] for line in lines[2:6]] == ["0-19", "20-39", "40-60", "61-79"]
    assert lines[7].startswith("one conversation: 1.3 tokens/s; 4 together: 4.9 tokens/s")
    assert lines[-2].startswith("assumed of each peer: 4 GB of its memory taken by the system, 50 GB/s when ")
    assert lines[-1].startswith("weights at 4 bits, 4 conversations of 4,096 tokens, no speculation; ")


def test_better_machines_give_a_better_plan(capsys: pytest.CaptureFixture[str]) -> None:
    rates = []
    for more in ([], ["--memory-speed", "100"], ["--memory-speed", "100", "--round-trip", "100"]):
        main(["fleet", "plan", "--model", "llama-3.1-8b", "--peers", "2x32GB", "--json", *more])
        rates.append(json.loads(capsys.readouterr().out)["tokens_per_s"]["one_conversation"])
    assert rates[2] < rates[0] < rates[1]


def measures(peers: tuple[PeerSpec, ...]) -> list[PeerMeasure]:
    facts = PeerFacts("", 2**33, 1e-10, 1e-11, 0.001, 1e8)
    told = Measured("0.1.0", "2026.4.1", "CPU", 2**33, 5000, 100_000, "")
    return [
        PeerMeasure(
            PeerFacts(peer.title, facts.memory_free, facts.decode * (number + 1), 1e-11, 0.001, 1e8),
            peer.address or Address("127.0.0.1", 1),
            told,
        )
        for number, peer in enumerate(peers)
    ]


def test_a_measured_plan_can_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(peers: tuple[PeerSpec, ...], key: bytes, threads: int | None) -> list[PeerMeasure]:
        return measures(peers)

    monkeypatch.setattr(measuring, "measure_all", measured)
    for peer in ("a:1 --name one", "b:1 --spare", "c:1 --name two"):
        main(["fleet", "add", *peer.split()])
    before = (folder / "fleet.toml").read_text()
    assert main(["fleet", "plan", "--write"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"written to {folder / 'fleet.toml'}; a chat that runs moves to it by itself, "
        "and so does the next start"
    )
    after = before.replace('name = "one"\n', 'name = "one"\nlayers = "0-25"\n')
    assert (folder / "fleet.toml").read_text() == after.replace(
        'name = "two"\n', 'name = "two"\nlayers = "26-29"\n'
    )


def test_peers_of_one_machine_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(peers: tuple[PeerSpec, ...], key: bytes, threads: int | None) -> list[PeerMeasure]:
        return measures(peers)

    monkeypatch.setattr(measuring, "measure_all", measured)
    sharing = {
        ("a:1 --name one", "a:2 --name two", "b:1"): "note: one, two share the machine a; ",
        ("127.0.0.1:1", "local", "localhost:3"): "note: 127.0.0.1:1, local, localhost:3 share this machine; ",
        ("[::1]:1", "a:1", "b:1"): "",
    }
    for peers, note in sharing.items():
        for peer in peers:
            main(["fleet", "add", *peer.split(), "--fleet", f"{len(note)}.toml"])
        capsys.readouterr()
        assert main(["fleet", "plan", "--conversations", "1", "--fleet", f"{len(note)}.toml"]) == 0
        lines = capsys.readouterr().out.splitlines()
        told = [line for line in lines if line.startswith("note: ")]
        assert told == ([f"{note}{SLOWER}"] if note else [])


SLOWER = "the plan takes each as if it had the machine for itself, together they are slower"


def test_one_conversation_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    paper = ["--model", "llama-3.1-8b", "--peers", "2x32GB"]
    assert main(["fleet", "plan", *paper, "--conversations", "1"]) == 0
    text = capsys.readouterr().out
    assert "together" not in text
    assert "one conversation on the chain gets " in text
    assert "1 conversation of 4,096 tokens" in text
    assert "1 conversations" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no peers are named, so there is nothing to measure"),
        (["--peers", "3x"], "--peers 3x: '3x' is not of the form NxSIZE"),
        (["--peers", "2x16GB", "--model", "llama-3.3-70b"], "the fleet is too small for llama-3.3-70b"),
        (["--peers", "2x16GB", "--model", "gpt-7"], "the shape of the model 'gpt-7' is not known"),
        (["--peers", "1x16GB", "--context", "0"], "--context must be from 1 to 10,000,000, not 0"),
        (["--peers", "1x16GB", "--round-trip", "0"], "--round-trip must be above 0, not 0"),
        (["--peers", "1x16GB", "--write"], "--write is for a measured plan of the configured recipe"),
        (["--peers", "1x16GB", "--bits", "5"], "invalid choice"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0].startswith("error: ")
    assert said in lines[0] or said == "invalid choice"
    assert len(lines) <= 2
