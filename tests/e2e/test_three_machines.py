"""A chat and three machines that become its fleet: each with its own network, store and key file.

STEPS are the commands of the README's section "A fleet of three machines", in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetchat.bench.memory import mapped_shards
from tests.e2e.machines import ADDRESSES, CHECKOUT, Network, network
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STEPS = """\
chat$ fleetchat fleet key
chat$ scp ~/.config/fleetchat/fleet.key one:
chat$ scp ~/.config/fleetchat/fleet.key two:
chat$ scp ~/.config/fleetchat/fleet.key three:
one$ fleetchat peer --listen 0.0.0.0:7077 --key-file fleet.key
two$ fleetchat peer --listen 0.0.0.0:7077 --key-file fleet.key
three$ fleetchat peer --listen 0.0.0.0:7077 --key-file fleet.key
chat$ fleetchat fleet add 192.168.1.11:7077 --name one
chat$ fleetchat fleet add 192.168.1.12:7077 --name two
chat$ fleetchat fleet add 192.168.1.13:7077 --name three
chat$ fleetchat fleet list
chat$ fleetchat ask "What is the capital of France?"
"""
RECIPE = 'title = "Tiny"\n[source]\nkind = "path"\npath = "model"\n'
PEERS = ("one", "two", "three")
EXACT = "--temperature 0 --precision exact"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """The machines after all steps. The model is a tiny one, nothing else differs from the README."""
    folder = tmp_path_factory.mktemp("machines")
    write_tiny_model(folder / "model")
    (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    with network(folder) as machines:
        machines["chat"].more_environment = {
            "FLEETCHAT_MODEL_RECIPE": str(folder / "tiny.toml"),
            "FLEETCHAT_SAMPLING_MAX_TOKENS": "30",
        }
        for step in STEPS.splitlines():
            _take(machines, *step.split("$ ", 1))
        yield machines


def _take(machines: Network, name: str, command: str) -> None:
    machine = machines[name]
    if command.startswith("fleetchat peer"):
        stdout = machine.start(command).stdout
        assert stdout is not None
        lines = [stdout.readline() for _ in range(5 if machine.namespace else 4)]
        assert lines[-1] == f"  fleetchat fleet add {machine.address}:7077\n"
        return
    done = machine.run(command)
    assert done.returncode == 0, done.stderr


def received(machines: Network, name: str) -> list[str]:
    """Files of shards that a machine has."""
    store = machines[name].folder / "cache" / "shards"
    return sorted(path.name for path in store.rglob("*") if path.is_file())


def answer(machines: Network, more: str = "") -> list[int]:
    done = machines["chat"].run(f"fleetchat ask Hello {EXACT} --max-tokens 60 --json {more}")
    assert done.returncode == 0, done.stderr
    ids: list[int] = json.loads(done.stdout)["answers"][0]["token_ids"]
    return ids


def test_the_readme_has_the_same_commands() -> None:
    section = (CHECKOUT / "README.md").read_text(encoding="utf-8").split("## A fleet of three machines")[1]
    block = section.split("```")[1].strip("\n")
    assert re.sub(r"\s*# .*", "", block).splitlines() == STEPS.splitlines()


def test_each_peer_has_its_own_shard_and_no_other(fleet: Network) -> None:
    for stage, name in enumerate(PEERS):
        assert received(fleet, name) == ["manifest.json", f"stage-0{stage}.bin", f"stage-0{stage}.xml"]


def test_a_peer_maps_no_shard_but_its_own(fleet: Network) -> None:
    answer(fleet)
    for stage, name in enumerate(PEERS):
        (process,) = fleet[name].running
        assert mapped_shards(process.pid) == [f"stage-0{stage}.bin"]


def test_the_fleet_answers_as_this_machine_alone_does(fleet: Network) -> None:
    alone = (fleet["chat"].folder / "alone.toml").absolute()
    alone.write_text("[fleet]\nmode = 'embedded'\nstages = 3\n", encoding="utf-8")
    assert answer(fleet) == answer(fleet, f"--fleet {alone}")


def test_a_wrong_key_is_refused_and_told(fleet: Network) -> None:
    chat = fleet["chat"]
    assert chat.run("fleetchat fleet key other.key").returncode == 0
    wrong = chat.folder / "wrong.toml"
    wrong.write_text(
        f'[fleet]\nkey_file = "{chat.home / "other.key"}"\n'
        + "".join(f'[[fleet.peers]]\naddress = "{fleet[name].address}:7077"\n' for name in PEERS),
        encoding="utf-8",
    )
    done = chat.run(f"fleetchat ask Hello --fleet {wrong}")
    assert done.returncode == 2
    assert f"{fleet['one'].address}:7077: the two sides do not hold the same fleet key" in done.stderr


def test_a_strange_folder_s_fleet_is_not_used(fleet: Network) -> None:
    chat = fleet["chat"]
    here = chat.home / "fleet.toml"
    here.write_text('[[fleet.peers]]\naddress = "192.168.1.66:7077"\n', encoding="utf-8")
    try:
        done = chat.run("fleetchat ask Hello")
    finally:
        here.unlink()
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: {here} names peers and was not confirmed yet",
        "hint: to use it, say so: --fleet ./fleet.toml",
    ]


def test_no_key_is_on_a_command_line_or_in_a_log(fleet: Network) -> None:
    key = (fleet["chat"].folder / "config" / "fleet.key").read_text().strip()
    assert len(key) == 64
    for name in PEERS:
        (process,) = fleet[name].running
        assert key.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    logs = [path for path in fleet["chat"].folder.parent.rglob("*") if path.suffix in (".log", ".toml")]
    assert logs
    assert all(key not in path.read_text(encoding="utf-8", errors="replace") for path in logs)


def test_peers_are_found_by_their_announcements(fleet: Network) -> None:
    if not fleet.hub:
        pytest.skip("this machine's own peers are not announced under loopback addresses")
    nobody = fleet["chat"].folder / "nobody.toml"
    nobody.write_text("", encoding="utf-8")
    done = fleet["chat"].run(f"fleetchat fleet discover --seconds 2 --fleet {nobody}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert sorted(line.split()[0] for line in lines[::2]) == [f"{ADDRESSES[name]}:7077" for name in PEERS]
    assert all(", the key is right, " in line for line in lines[::2])
    assert all(line.startswith("    to use it: fleetchat fleet add 192.168.1.1") for line in lines[1::2])


def test_an_answer_goes_on_after_its_cable_was_pulled(fleet: Network) -> None:
    if not fleet.hub:
        pytest.skip("cables can be pulled in network namespaces only")
    question = f"fleetchat ask Hello {EXACT} --max-tokens 900"
    undisturbed = fleet["chat"].run(question).stdout
    process = fleet["chat"].start(question)
    assert process.stdout is not None
    assert process.stderr is not None
    begun = process.stdout.read(20)
    fleet.plug("two", "down")
    lost = process.stderr.readline()
    fleet.plug("two", "up")
    rest, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert begun + rest == undisturbed
    assert f"stage 1 at {ADDRESSES['two']}:7077" in lost or f"Stage 1 ({ADDRESSES['two']}:7077)" in lost
