"""`fleetchat shards` on a peer that was sent a shard."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.cli.main import main
from fleetchat.cutter.received import PeerStore
from fleetchat.fleet.push import Shard
from tests.fakes.builds import write_build
from tests.peer.builders import BUILD

LINE = "bbbbbbbbbbbb  fake  received: stage 1 of 2  4 MB"


def receive(chat: Path, peer: Path) -> Path:
    """The shard of stage 1, as it comes over a link; its folder."""
    store, made = write_build(chat)
    files = Shard(made, 1, store.folder(BUILD)).files()
    reception = PeerStore(peer).begin(BUILD, 1, files)
    for number, file in enumerate(files):
        reception.write(number, 0, (store.folder(BUILD) / file.name).read_bytes())
    reception.close()
    assert reception.complete
    return peer / "received" / BUILD


def test_it_is_listed_verified_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = receive(tmp_path / "chat", tmp_path / "peer")
    store = ["--store", str(tmp_path / "peer")]
    assert main(["shards", "list", *store]) == 0
    listed, *unbuilt = capsys.readouterr().out.splitlines()
    assert listed == LINE
    assert {line[:14] for line in unbuilt} == {"not built     "}
    assert main(["shards", "verify", *store]) == 0
    assert main(["shards", "verify", "fake", *store]) == 0
    assert capsys.readouterr().out.splitlines() == [f"ok       {LINE}", f"ok       {LINE}"]
    weights = folder / "stage-01.bin"
    weights.write_bytes(bytes(weights.stat().st_size))
    assert main(["shards", "verify", *store]) == 1
    assert capsys.readouterr().out.splitlines() == [f"damaged  {LINE}"]
    assert main(["shards", "rm", "bbbbbb", *store]) == 0
    assert not folder.exists()
    assert main(["shards", "list", *store]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == unbuilt


def test_a_shard_that_never_came_whole_is_unused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = receive(tmp_path / "chat", tmp_path / "peer")
    store = ["--store", str(tmp_path / "peer")]
    assert main(["shards", "rm", "--unused", *store]) == 0
    assert folder.exists()
    (folder / "stage-01.bin").unlink()
    (folder / ".stage-01.bin.0123.part").write_bytes(b"some")
    assert main(["shards", "rm", "--unused", *store]) == 0
    assert capsys.readouterr().out.splitlines() == ["removed  received/bbbbbbbbbbbb  0 MB"]
    assert not folder.exists()
