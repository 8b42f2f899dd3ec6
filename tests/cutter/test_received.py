"""What a peer keeps of a shard that arrives, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.cutter.manifest import StoredFile
from fleetchat.cutter.received import LARGEST_MANIFEST, PeerStore, Reception
from fleetchat.errors import InputError, ShardDamaged
from fleetchat.fleet.push import Shard
from tests.fakes.builds import write_build
from tests.peer.builders import BUILD

Begun = tuple[Reception, tuple[StoredFile, ...], dict[str, bytes]]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[StoredFile, ...], dict[str, bytes]]:
    store, made = write_build(tmp_path_factory.mktemp("chat"))
    files = Shard(made, 0, store.folder(BUILD)).files()
    return files, {file.name: (store.folder(BUILD) / file.name).read_bytes() for file in files}


def test_it_is_taken_up_where_it_was_left(
    shard: tuple[tuple[StoredFile, ...], dict[str, bytes]], tmp_path: Path
) -> None:
    files, content = shard
    first = PeerStore(tmp_path).begin(BUILD, 0, files)
    first.write(0, 0, content["manifest.json"])
    first.write(1, 0, content[files[1].name][:1000])
    first.close()
    again = PeerStore(tmp_path).begin(BUILD, 0, files)
    assert again.offsets == [files[0].size, 1000, 0]
    again.write(1, 1000, content[files[1].name][1000:])
    again.write(2, 0, content[files[2].name])
    assert again.complete
    assert again.bytes_here == again.bytes_wanted
    again.close()
    assert sorted(path.name for path in (tmp_path / "received" / BUILD).iterdir()) == sorted(content)


def test_only_what_comes_next_is_taken(
    shard: tuple[tuple[StoredFile, ...], dict[str, bytes]], tmp_path: Path
) -> None:
    files, content = shard
    reception = PeerStore(tmp_path).begin(BUILD, 0, files)
    for number, offset, payload, said in (
        (1, 0, b"x", "the manifest must come before"),
        (0, 1, b"x", "do not come next"),
        (3, 0, b"x", "do not come next"),
        (0, 0, bytes(files[0].size + 1), "grew larger than it was offered"),
    ):
        with pytest.raises(InputError, match=said):
            reception.write(number, offset, payload)
    reception.write(0, 0, content["manifest.json"])
    with pytest.raises(ShardDamaged, match=r"stage-00\.xml arrived damaged"):
        reception.write(1, 0, bytes(files[1].size))
    assert reception.offsets == [files[0].size, 0, 0]
    assert not reception.complete
    reception.close()
    assert PeerStore(tmp_path).find(BUILD, 0) is None


@pytest.mark.parametrize(
    ("number", "changes", "said"),
    [
        (0, {"name": "other.json"}, "an offer names a manifest"),
        (0, {"size": LARGEST_MANIFEST + 1}, "is too large to be one"),
        (1, {"name": "../../evil.xml"}, "must not lead elsewhere"),
        (2, {"name": ".."}, "must not lead elsewhere"),
    ],
)
def test_an_offer_that_is_none_is_refused(
    shard: tuple[tuple[StoredFile, ...], dict[str, bytes]],
    number: int,
    changes: dict[str, object],
    said: str,
    tmp_path: Path,
) -> None:
    from dataclasses import replace

    files = list(shard[0])
    files[number] = replace(files[number], **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=said):
        PeerStore(tmp_path).begin(BUILD, 0, files)
    with pytest.raises(InputError, match="an offer names a manifest"):
        PeerStore(tmp_path).begin(BUILD, 0, files[:2])
