"""What `/add` of a chat that runs writes, and whom it refuses before anything is written."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from fleetchat.cli.fleet_changes import FileChanges, config_source
from fleetchat.config import load
from fleetchat.errors import ConfigError, PeerUnreachable
from fleetchat.fleet import greeting
from fleetchat.keys import KEY_FILE_NAME
from tests.fakes.peers import nobody_listens
from tests.peer.coordinator import KEY, fake_peer

pytestmark = pytest.mark.trio


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, which is not there yet; the key is that of the fake peers."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"FLEETCHAT_{name}_DIR", str(tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_key(tmp_path, KEY)
    monkeypatch.setattr(greeting, "DEADLINE", 60.0)  # a busy machine may take long to answer itself
    return tmp_path / "fleet.toml"


def write_key(folder: Path, key: bytes) -> None:
    path = folder / KEY_FILE_NAME
    path.touch(mode=0o600)
    path.write_text(f"{key.hex()}\n")


def is_there(path: Path) -> bool:
    return path.exists()


async def add(address: str, name: str = "") -> str:
    changes = FileChanges(config_source(None, {}, load()))
    return await trio.to_thread.run_sync(changes.add_peer, address, name)


async def test_a_peer_that_answers_is_written(file: Path) -> None:
    async with fake_peer() as peer:
        told = await add(str(peer.address), "desk")
        assert told == f"Added {peer.address} to {file}; the fleet moves to 1 stage"
        with pytest.raises(ConfigError, match="names the peer"):
            await add(str(peer.address))
    assert [one.name for one in load().fleet.peers] == ["desk"]


async def test_nobody_who_does_not_answer_is_written(file: Path) -> None:
    with nobody_listens() as nobody, pytest.raises(PeerUnreachable) as refused:
        await add(str(nobody), "dead")
    assert refused.value.message == f"{nobody} was not added: it does not answer: connection refused"
    assert refused.value.hint
    assert not is_there(file)


@pytest.mark.parametrize("key", [bytes(32), None])
async def test_nobody_with_another_key_is_written(file: Path, key: bytes | None) -> None:
    (file.parent / KEY_FILE_NAME).unlink()
    if key is not None:
        write_key(file.parent, key)
    async with fake_peer() as peer:
        with pytest.raises(PeerUnreachable, match=r"was not added: a peer answers, but .* key"):
            await add(str(peer.address))
    assert not is_there(file)
    assert is_there(file.parent / KEY_FILE_NAME) is (key is not None)


async def test_a_program_that_is_no_peer_is_not_written(file: Path) -> None:
    async def say_nonsense(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(200))

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), say_nonsense, 0)
        port = listener.socket.getsockname()[1]
        with pytest.raises(PeerUnreachable, match="was not added: it does not answer: "):
            await add(f"127.0.0.1:{port}")
        nursery.cancel_scope.cancel()
    assert not is_there(file)


async def test_a_local_stage_needs_nobody(file: Path) -> None:
    assert await add("local") == f"Added local to {file}; the fleet moves to 1 stage"
