"""A peer process and what strangers, signals and the death of its parent do to it."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio

from fleetchat.errors import FleetError, InputError
from fleetchat.ids import Address
from fleetchat.peer.process import listen
from fleetchat.wire.frames import Goodbye
from fleetchat.wire.header import HEADER_BYTES, pack_untagged
from fleetchat.wire.kinds import Kind
from tests.fakes.engine import by_session
from tests.peer.builders import piece
from tests.peer.coordinator import KEY, closing_links, open_chain, until

DEADLINE = 30.0  # seconds; only a fault takes as long
ROOT = Path(__file__).resolve().parents[2]
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
posix_only = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")


@contextmanager
def peer_process(*options: str) -> Iterator[tuple[subprocess.Popen[str], Address]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.peer.fake_peer_process", *options],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            if "--embedded" in options:
                process.stdin.write(KEY.hex() + "\n")
                process.stdin.flush()
            yield process, Address("127.0.0.1", json.loads(process.stdout.readline())["port"])
        finally:
            process.kill()


def connected(address: Address) -> socket.socket:
    connection = socket.create_connection(address, timeout=DEADLINE)
    connection.settimeout(DEADLINE)
    return connection


def answer_of(address: Address, sent: bytes) -> bytes:
    """All that comes back; the peer must end the connection by itself."""
    received = b""
    with connected(address) as connection, suppress(ConnectionError):
        connection.sendall(sent)
        with suppress(OSError):  # ENOTCONN, where the peer has reset the connection already
            connection.shutdown(socket.SHUT_WR)
        while chunk := connection.recv(4096):
            received += chunk
    return received


def resident(process: subprocess.Popen[str]) -> int:
    """Bytes."""
    fields = Path(f"/proc/{process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def one_session(address: Address) -> None:
    async with closing_links():
        chain = await open_chain([address])
        result = await chain.round(piece(1, 0, [5, 6]))
        assert result.results[0].token == by_session(1, 2)


def garbage(number: int) -> bytes:
    generator = random.Random(number)
    if number % 2:  # a header that looks right, with any kind and length
        kind = generator.choice(list(Kind))
        header = pack_untagged(kind, generator.randrange(2**32), flags=0, epoch=0, sequence=0, slices=0)
        return (header + bytes(HEADER_BYTES))[:HEADER_BYTES] + generator.randbytes(100)
    return generator.randbytes(generator.randrange(1, 2000))


@linux_only
@pytest.mark.slow
def test_strangers_cannot_hurt_a_peer() -> None:
    huge = pack_untagged(Kind.HELLO, 2**32 - 1, flags=0, epoch=0, sequence=0, slices=0)
    with peer_process() as (process, address):
        trio.run(one_session, address)
        before = resident(process)
        with connected(address):  # stays silent to the end
            for number in range(200):
                answer_of(address, garbage(number))
            answer_of(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer_of(address, huge + bytes(HEADER_BYTES - len(huge)))
            answer_of(address, b"")
            assert process.poll() is None
            assert resident(process) - before < 10_000_000
            trio.run(one_session, address)


@posix_only
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_goodbye(number: signal.Signals, code: int) -> None:
    with peer_process() as (process, address):

        async def told() -> None:
            async with closing_links():
                chain = await open_chain([address])
                process.send_signal(number)
                assert await until(chain.controls[0], Goodbye) == Goodbye("the peer was stopped")

        trio.run(told)
        assert process.stdout is not None
        assert process.stdout.readline() == f"left {code}, inference runs: False\n"
        assert process.wait(5) == code


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--hang",)], ids=["idle", "in mid-inference"])
def test_an_embedded_peer_ends_with_its_stdin(options: tuple[str, ...]) -> None:
    with peer_process("--embedded", *options) as (process, address):

        async def begin() -> None:
            async with closing_links():
                chain = await open_chain([address])
                await chain.send(piece(1, 0, [5]))
                if options:
                    await chain.wait_statistics(lambda statistics: statistics.queue_length == 1)

        trio.run(begin)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(3) == 0


PARENT = """
import subprocess, sys
from fleetchat.child import own_process_group
command = [sys.executable, "-m", "tests.peer.fake_peer_process", "--embedded"]
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
child = subprocess.Popen(command, **pipes, text=True, **own_process_group())
child.stdin.write(sys.argv[1] + "\\n")
child.stdin.flush()
print(child.pid, child.stdout.readline(), flush=True)
child.wait()
"""


@linux_only
@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped by a signal"])
def test_an_embedded_peer_dies_when_its_parent_is_killed(stopped: bool) -> None:
    command = [sys.executable, "-c", PARENT, KEY.hex()]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, announcement = parent.stdout.readline().split(maxsplit=1)
        trio.run(one_session, Address("127.0.0.1", json.loads(announcement)["port"]))
        if stopped:
            os.kill(int(pid), signal.SIGSTOP)
            wait_until(lambda: threads_of(int(pid)) == {"T"}, DEADLINE)
        parent.kill()
        wait_until(lambda: not alive(int(pid)), 3.0)


def alive(pid: int) -> bool:
    """A zombie, whose new parent has not looked yet, is dead."""
    return state_of(pid) not in "ZX"


def threads_of(pid: int) -> set[str]:
    """Letters of all threads: a process has stopped when the last of them has."""
    files = Path(f"/proc/{pid}/task").glob("*/stat")
    return {file.read_text().rpartition(")")[2].split()[0] for file in files}


def state_of(pid: int) -> str:
    """Its letter in /proc; X when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.01)


@pytest.mark.trio
async def test_a_port_in_use_is_one_clear_line() -> None:
    (listener,) = await listen(Address("127.0.0.1", 0))
    async with listener:
        port = listener.socket.getsockname()[1]
        with pytest.raises(FleetError) as caught:
            await listen(Address("127.0.0.1", port))
    assert caught.value.message == f"cannot listen on 127.0.0.1:{port}: the port is in use"
    assert caught.value.exit_code == 1


@pytest.mark.trio
async def test_an_address_of_another_machine_is_wrong_input() -> None:
    with pytest.raises(InputError, match="this machine does not have that address"):
        await listen(Address("192.0.2.1", 0))


def test_the_headers_of_this_test_are_what_the_wire_reads() -> None:
    packed = pack_untagged(Kind.HELLO, 2**32 - 1, flags=0, epoch=0, sequence=0, slices=0)
    assert struct.unpack("<I", packed[-4:])[0] == 2**32 - 1
    assert len(packed) < HEADER_BYTES


@pytest.mark.trio
async def test_a_port_of_the_system_is_the_user_s_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(port: int, *, host: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(trio, "open_tcp_listeners", refuse)
    with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1:80: you may not use that port"):
        await listen(Address("127.0.0.1", 80))
