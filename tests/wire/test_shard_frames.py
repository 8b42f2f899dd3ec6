"""What can be offered, and what cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.errors import LocalProtocolError, RemoteProtocolError
from fleetchat.wire.codec import CHUNK_HEAD
from fleetchat.wire.frames import Chunk, Have, Limits, Measure, Offer, ShardFile
from fleetchat.wire.header import NO_TAG, pack_untagged
from fleetchat.wire.kinds import Kind
from fleetchat.wire.states import Side, State
from tests.wire.samples import OFFER, Pair

FILE = OFFER.files[1]


@pytest.mark.parametrize(
    "file",
    [
        FILE._replace(name=name)
        for name in ("", "..", ".part", "../x", "a/b", "a\\b", "C:x", "x" * 129, "é", "a b", "a\0b")
    ]
    + [FILE._replace(size=size) for size in (0, -1, 2**64)]
    + [FILE._replace(sha256=text) for text in ("", "F" * 64, "0" * 63)],
)
def test_a_file_that_could_do_harm_is_not_offered(file: ShardFile) -> None:
    with pytest.raises(LocalProtocolError):
        replace(OFFER, files=(file,))


@pytest.mark.parametrize(
    "changes", [{"files": ()}, {"files": (FILE,) * 2}, {"chunk": 1}, {"chunk": 2**20 + 1}, {"stage": 256}]
)
def test_an_offer_is_bounded(changes: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        replace(OFFER, **changes)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError):
        Have(())


@pytest.mark.parametrize("payload", [b"", bytes(2**20 + 1)])
def test_a_chunk_has_a_size(payload: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        Chunk(0, 0, payload)


def test_a_layer_that_would_take_a_machine_down_is_not_timed() -> None:
    with pytest.raises(LocalProtocolError, match="too large to be measured"):
        Measure(65_536, 65_536, 1)


def test_a_chunk_that_is_larger_than_agreed_is_refused_before_it_is_read() -> None:
    limits = Limits(4096 + CHUNK_HEAD, max_rows=0, max_slices=0, hidden=0)
    pair = Pair(State.OFFERED, limits)
    with pytest.raises(LocalProtocolError, match="larger than this link carries"):
        pair.dialler.send(Chunk(0, 0, bytes(4097)))
    pair.listener.receive_data(pack_untagged(Kind.CHUNK, 4097 + CHUNK_HEAD) + NO_TAG)
    with pytest.raises(RemoteProtocolError, match="agreed were at most"):
        pair.listener.next_event()
    assert pair.of(Side.LISTENER).frame_bytes == 0


def test_a_second_offer_on_a_link_is_refused() -> None:
    pair = Pair(State.OFFERED)
    with pytest.raises(LocalProtocolError, match="OFFER must not be sent on a shard link"):
        pair.dialler.send(OFFER)
    assert isinstance(OFFER, Offer)
