"""Ten thousand damaged frames, to a peer and to a coordinator, before and after the handshake.

Whatever comes: a protocol error or silence, never another exception, never a body larger than agreed. An
unauthenticated byte yields no frame. The worst sender knows the key: it tags its nonsense correctly.
"""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from functools import cache
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.errors import PeerRefused, RemoteProtocolError
from fleetchat.wire.frames import Forward, Frame, Result
from fleetchat.wire.handshake import MAX_HANDSHAKE_FRAME
from fleetchat.wire.header import HEADER_BYTES, UNTAGGED_BYTES
from fleetchat.wire.protocol import NEED_DATA, Closed, Connection
from fleetchat.wire.states import Purpose, Side
from tests.wire.mutation import mutated
from tests.wire.samples import KEY, SAMPLES, Sample, joined, pair_for, plain

HANDSHAKES = 2_000
NOISY = 3_000
LIES = 5_000
BATCHES = [n for n, sample in enumerate(SAMPLES) if isinstance(sample.frame, (Forward, Result))]
MOST_MEMORY = 4 * 2**20  # bytes, for all of them together


def fed(receiver: Connection, wire: bytes) -> list[object]:
    """Everything that comes out, until the link is dead or wants more."""
    found: list[object] = []
    limit = max(receiver.limits.max_body, MAX_HANDSHAKE_FRAME)
    if wire:
        receiver.receive_data(wire)
    receiver.receive_data(b"")
    with suppress(RemoteProtocolError, PeerRefused):
        while (event := receiver.next_event()) is not NEED_DATA:
            found.append(event)
            if isinstance(event, Closed):
                break
            assert len(found) < 1000
        assert receiver.frame_bytes <= limit
    return [event for event in found if not isinstance(event, Closed)]


@cache
def clean_frame(number: int) -> bytes:
    """A sample as it is sent on a link of its own; all but its tag is the same on every link."""
    sample = SAMPLES[number]
    return joined(pair_for(sample).of(sample.sender).send(sample.frame))


def damaged(wire: bytes, random: Random) -> tuple[bytes, bytes]:
    """Header without tag and body of a frame, damaged; the length is mostly right."""
    head, body = wire[:UNTAGGED_BYTES], wire[HEADER_BYTES:]
    if random.random() < 0.3:
        head = mutated(head, random)[:UNTAGGED_BYTES].ljust(UNTAGGED_BYTES, b"\0")
    if random.random() < 0.9:
        body = mutated(body, random)
    if random.random() < 0.9:
        head = head[:-4] + struct.pack("<I", len(body))
    return head, body


def lie(number: int, random: Random) -> list[object]:
    """What a receiver makes of a damaged frame whose sender knows the key."""
    sample = SAMPLES[number]
    pair = pair_for(sample)
    sender = pair.of(sample.sender)
    head, body = damaged(clean_frame(number), random)
    tag = sender._our_tags.begin(head)
    tag.update(body)
    return fed(pair.of(sample.sender.other), head + tag.digest() + body)


def noise(sample: Sample, random: Random) -> list[object]:
    """What a receiver makes of a frame that was damaged on the way."""
    pair = pair_for(sample)
    wire = joined(pair.of(sample.sender).send(sample.frame))
    broken = mutated(wire, random)
    found = fed(pair.of(sample.sender.other), broken)
    return found if not broken.startswith(wire) else found[1:]


def stranger(side: Side, random: Random) -> list[object]:
    """What comes out of a handshake with damaged bytes, sent to a peer or to a coordinator."""
    purpose = random.choice((Purpose.CONTROL, Purpose.DATA))
    dialler, listener = Connection.dialler(KEY, purpose=purpose), Connection.listener(KEY)
    hello = joined(dialler.start())
    if side is Side.LISTENER:
        return fed(listener, mutated(hello, random))
    listener.receive_data(hello)
    listener.next_event()
    return fed(dialler, mutated(joined(listener.bytes_to_send()), random))


def test_ten_thousand_damaged_frames() -> None:
    random = Random(20)
    for number in range(HANDSHAKES):
        assert stranger(Side(number % 2), random) == []
    for number in range(NOISY):
        assert noise(SAMPLES[number % len(SAMPLES)], random) == []
    accepted = 0
    for number in range(LIES):
        found = lie(number % len(SAMPLES), random)
        assert all(isinstance(event, Frame) for event in found)
        accepted += len(found)
    assert accepted > 100  # some lies are legal frames: what they say is checked where it is used


def test_damaged_frames_take_no_memory() -> None:
    random = Random(21)
    tracemalloc.start(1)
    try:
        for number in range(10 * len(SAMPLES)):
            lie(number % len(SAMPLES), random)
            stranger(Side(number % 2), random)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@settings(max_examples=200, deadline=None)
@given(number=st.integers(0, len(SAMPLES) - 1), seed=st.integers(0, 2**32))
def test_damage_that_hypothesis_looks_for(number: int, seed: int) -> None:
    random = Random(seed)
    assert noise(SAMPLES[number], random) == []
    assert all(isinstance(event, Frame) for event in lie(number, random))
    assert stranger(Side(seed % 2), random) == []


@settings(max_examples=200, deadline=None)
@given(number=st.sampled_from(BATCHES), seed=st.integers(0, 2**32), cut=st.floats(0.01, 0.99))
def test_a_batch_in_one_piece_is_taken_as_one_in_two(number: int, seed: int, cut: float) -> None:
    """A frame, one that is a lie, noise or good, and a frame again: same events, same error, same numbers."""
    whole, pieces = (between_good_frames(number, Random(seed), size) for size in (1.0, cut))
    assert whole == pieces


def between_good_frames(number: int, random: Random, size: float) -> list[object]:
    """What comes of three frames, each of them fed after its first part of `size`."""
    sample = SAMPLES[number]
    pair = pair_for(sample)
    sender, receiver = pair.of(sample.sender), pair.of(sample.sender.other)
    first = joined(sender.send(sample.frame))
    head, body = (
        damaged(first, random) if random.random() < 0.5 else (first[:UNTAGGED_BYTES], first[HEADER_BYTES:])
    )
    tag = sender._our_tags.begin(head)
    tag.update(body)
    second = bytearray(head + tag.digest() + body)
    if random.random() < 0.3:
        second[random.randrange(len(second))] ^= 1 << random.randrange(8)
    third = joined(sender.send(sample.frame))
    found: list[object] = []
    try:
        for wire in (first, bytes(second), third):
            cut = max(1, int(size * len(wire)))
            for piece in (wire[:cut], wire[cut:]):
                if piece:
                    receiver.receive_data(piece)
                while (event := receiver.next_event()) is not NEED_DATA:
                    found.append((plain(event), receiver.last_frame_bytes, receiver.mid_frame))
    except RemoteProtocolError as error:
        found.append(str(error))
    return found
