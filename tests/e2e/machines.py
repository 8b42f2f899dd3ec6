"""Machines for tests: network namespaces on one bridge, or, where those are not allowed, loopback addresses.

Each machine has its own home, configuration, state and store. Commands are written as in the README.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("chat", "one", "two", "three")
ADDRESSES = {name: f"192.168.1.{10 + number}" for number, name in enumerate(NAMES)}
LOOPBACK = {name: f"127.0.0.{1 + number}" for number, name in enumerate(NAMES)}
CHECKOUT = Path(__file__).parents[2]


@dataclass(eq=False)
class Machine:
    """`namespace` empty: it shares the network of the test, under a loopback address."""

    name: str
    folder: Path
    namespace: str
    others: dict[str, Machine]
    more_environment: dict[str, str] = field(default_factory=dict)
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def address(self) -> str:
        return (ADDRESSES if self.namespace else LOOPBACK)[self.name]

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        words = shlex.split(command)
        if words[0] == "scp":
            return self._copy(*words[1:])
        return subprocess.run(
            self._words(command),
            cwd=self.home,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=170,
        )

    def start(self, command: str) -> subprocess.Popen[str]:
        """A command that goes on; it ends with the network."""
        process = subprocess.Popen(
            self._words(command),
            cwd=self.home,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def stop(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()
        self.running.clear()

    def _copy(self, source: str, target: str) -> subprocess.CompletedProcess[str]:
        """`scp` between two homes; what lies in ~/.config lies in the test's own folder."""
        path = Path(source.replace("~/.config/fleetchat", str(self.folder / "config")))
        shutil.copy2(path, self.others[target.rstrip(":")].home)
        return subprocess.CompletedProcess([], 0, "", "")

    def _words(self, command: str) -> list[str]:
        if not self.namespace:
            for name, address in ADDRESSES.items():
                command = command.replace(address, LOOPBACK[name])
            command = command.replace("0.0.0.0", self.address)
        words = shlex.split(command)
        assert words[0] == "fleetchat"
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        return [*inside, sys.executable, "-P", "-m", *words]

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLEETCHAT_")}
        folders = {
            f"FLEETCHAT_{name}_DIR": str(self.folder / name.lower()) for name in ("CONFIG", "STATE", "CACHE")
        }
        return {**inherited, **folders, "PYTHONPATH": str(CHECKOUT), **self.more_environment}


@dataclass(eq=False)
class Network:
    machines: dict[str, Machine]
    hub: str

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def plug(self, name: str, state: str) -> None:
        """Pull the cable of a machine ("down"), or put it in again ("up")."""
        _ip("-n", self.hub, "link", "set", name, state)


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """Four machines that reach each other."""
    hub = f"fleetchat-{os.getpid()}-hub"
    machines: dict[str, Machine] = {}
    separate = namespaces_allowed(hub)
    for name in NAMES:
        namespace = f"fleetchat-{os.getpid()}-{name}" if separate else ""
        machine = Machine(name, folder / name, namespace, machines)
        machine.home.mkdir(parents=True)
        machines[name] = machine
    try:
        if separate:
            _connect(hub, machines)
        yield Network(machines, hub if separate else "")
    finally:
        for machine in machines.values():
            machine.stop()
        for namespace in (hub, *(machine.namespace for machine in machines.values())):
            with suppress(subprocess.CalledProcessError, OSError):
                _ip("netns", "del", namespace)


def namespaces_allowed(hub: str) -> bool:
    """Makes the hub if it can be made."""
    try:
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _connect(hub: str, machines: dict[str, Machine]) -> None:
    for name, machine in machines.items():
        inside = machine.namespace
        _ip("netns", "add", inside)
        _ip("link", "add", name, "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", inside)
        _ip("-n", hub, "link", "set", name, "master", "bridge", "up")
        _ip("-n", inside, "address", "add", f"{machine.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", inside, "link", "set", device, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
