"""Bytes in, events out: chunking, damage, limits, and who may say what when."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.errors import LocalProtocolError, RemoteProtocolError
from fleetchat.ids import SessionId
from fleetchat.wire.frames import (
    CONTROL_BODY,
    Attached,
    Cancel,
    Close,
    Error,
    FaultCode,
    Forward,
    Goodbye,
    Kind,
    Ping,
    Pong,
    StatsRequest,
)
from fleetchat.wire.header import HEADER_BYTES, NO_TAG, pack_untagged
from fleetchat.wire.protocol import NEED_DATA, Closed, Connection
from fleetchat.wire.states import LEGAL, Purpose, Side, State
from tests.wire.samples import (
    EPOCH,
    FILL,
    FIRST,
    KEY,
    MIDDLE,
    SAMPLE_IDS,
    SAMPLES,
    VERIFY,
    Pair,
    Sample,
    events,
    forward,
    joined,
    opened,
    pair_for,
    plain,
)

each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_IDS)


def encoded(sample: Sample) -> tuple[Pair, bytes, Connection]:
    pair = pair_for(sample)
    return pair, joined(pair.of(sample.sender).send(sample.frame)), pair.of(sample.sender.other)


@each_sample
def test_a_frame_comes_out_as_it_went_in(sample: Sample) -> None:
    _, wire, receiver = encoded(sample)
    receiver.receive_data(wire)
    (event,) = events(receiver)
    assert plain(event) == plain(sample.frame)
    assert receiver.last_frame_bytes == len(wire)
    assert not receiver.mid_frame


@each_sample
def test_byte_by_byte_there_is_no_event_before_the_last_byte(sample: Sample) -> None:
    _, wire, receiver = encoded(sample)
    for position in range(len(wire) - 1):
        receiver.receive_data(wire[position : position + 1])
        assert receiver.next_event() is NEED_DATA
        assert receiver.mid_frame
    receiver.receive_data(memoryview(wire)[-1:])
    assert plain(receiver.next_event()) == plain(sample.frame)


@each_sample
def test_bytes_of_the_next_frame_stay_for_it(sample: Sample) -> None:
    pair, wire, receiver = encoded(sample)
    if isinstance(sample.frame, Goodbye):
        return  # nothing may follow
    following = joined(pair.of(sample.sender).send(Ping(77)))
    receiver.receive_data(wire + following[:5])
    assert [plain(event) for event in events(receiver)] == [plain(sample.frame)]
    receiver.receive_data(following[5:])
    assert events(receiver) == [Ping(77)]


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(range(len(SAMPLES))), cuts=st.lists(st.integers(1, 200), max_size=60))
def test_any_chunking_gives_the_same_frames(order: list[int], cuts: list[int]) -> None:
    upstream = [
        SAMPLES[i] for i in order if SAMPLES[i].state is State.UPSTREAM and SAMPLES[i].limits is MIDDLE
    ]
    frames = [sample.frame for sample in upstream if sample.sender is Side.DIALLER]
    pair = Pair(State.UPSTREAM, MIDDLE)
    wire = b"".join(joined(pair.dialler.send(frame)) for frame in frames)
    found = []
    for size in [*cuts, len(wire)]:
        chunk, wire = wire[:size], wire[size:]
        if chunk:
            pair.listener.receive_data(chunk)
            found += events(pair.listener)
    assert [plain(event) for event in found] == [plain(frame) for frame in frames]
    assert len(frames) == 6


@each_sample
def test_a_truncated_frame_is_an_error_at_the_end_of_the_file(sample: Sample) -> None:
    _, wire, receiver = encoded(sample)
    receiver.receive_data(wire[: len(wire) - 1])
    receiver.receive_data(b"")
    with pytest.raises(RemoteProtocolError, match="ended inside a frame"):
        receiver.next_event()


def test_the_end_of_the_file_between_two_frames_is_an_event() -> None:
    pair = Pair(State.UPSTREAM, FIRST)
    pair.listener.receive_data(joined(pair.dialler.send(Ping(1))))
    pair.listener.receive_data(b"")
    assert pair.listener.next_event() == Ping(1)
    assert pair.listener.next_event() == Closed()
    assert pair.listener.next_event() == Closed()
    with pytest.raises(LocalProtocolError):
        pair.listener.receive_data(b"more")


def flip(wire: bytes, bit: int) -> bytes:
    damaged = bytearray(wire)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def assert_no_event(receiver: Connection, damaged: bytes) -> None:
    """The frame is refused, or waits for bytes that never come; then the end of the file is refused."""
    receiver.receive_data(damaged)
    receiver.receive_data(b"")
    with pytest.raises(RemoteProtocolError):
        receiver.next_event()
    with pytest.raises(RemoteProtocolError):  # dead from now on
        receiver.next_event()


@pytest.mark.parametrize("number", [14, 15, 17, 20])
def test_no_single_flipped_bit_yields_a_frame(number: int) -> None:
    sample = SAMPLES[number]
    length = len(encoded(sample)[1])
    step = 1 if length < 120 else 7  # 7 is coprime to 8: every bit position of a byte is met
    for bit in range(0, 8 * length, step):
        _, wire, receiver = encoded(sample)
        assert_no_event(receiver, flip(wire, bit))


@settings(max_examples=150, deadline=None)
@given(number=st.integers(0, len(SAMPLES) - 1), where=st.floats(0, 1, exclude_max=True))
def test_no_flipped_bit_of_any_kind_yields_a_frame(number: int, where: float) -> None:
    _, wire, receiver = encoded(SAMPLES[number])
    assert_no_event(receiver, flip(wire, int(where * 8 * len(wire))))


def test_nothing_comes_out_behind_a_damaged_frame() -> None:
    pair = Pair(State.UPSTREAM, FIRST)
    first, second = joined(pair.dialler.send(Ping(1))), joined(pair.dialler.send(Ping(2)))
    assert_no_event(pair.listener, flip(first, 8 * HEADER_BYTES) + second)


def test_a_replayed_frame_is_refused() -> None:
    pair = Pair(State.UPSTREAM, FIRST)
    wire = joined(pair.dialler.send(Ping(1)))
    pair.listener.receive_data(wire)
    assert events(pair.listener) == [Ping(1)]
    assert_no_event(pair.listener, wire)


def test_swapped_frames_are_refused() -> None:
    pair = Pair(State.UPSTREAM, FIRST)
    first, second = joined(pair.dialler.send(Ping(1))), joined(pair.dialler.send(Ping(2)))
    assert_no_event(pair.listener, second + first)


def test_a_reflected_frame_is_refused() -> None:
    pair = Pair(State.UPSTREAM, FIRST)
    assert_no_event(pair.dialler, joined(pair.dialler.send(Ping(1))))


def test_a_frame_of_another_link_with_the_same_key_is_refused() -> None:
    other = Pair(State.UPSTREAM, FIRST)
    assert_no_event(Pair(State.UPSTREAM, FIRST).listener, joined(other.dialler.send(Ping(1))))


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n", b"\0", b"FLTD", b"FLTC" + bytes(36), b"FLTC\x02" + bytes(35), b"\xff" * 4096],
)
@pytest.mark.parametrize("state", [State.HANDSHAKE, State.UPSTREAM])
def test_garbage_is_refused_at_once(garbage: bytes, state: State) -> None:
    receiver = Connection.listener(KEY) if state is State.HANDSHAKE else Pair(state, FIRST).listener
    receiver.receive_data(garbage)
    with pytest.raises(RemoteProtocolError):
        receiver.next_event()


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300))
def test_random_bytes_never_yield_an_event(data: bytes) -> None:
    for receiver in (Connection.listener(KEY), Pair(State.UPSTREAM, MIDDLE).listener):
        if data:
            receiver.receive_data(data)
        with suppress(RemoteProtocolError):
            assert receiver.next_event() is NEED_DATA


@pytest.mark.parametrize(
    ("kind", "length", "fields"),
    [
        (Kind.FORWARD, MIDDLE.max_body + 1, {"flags": 3, "slices": 1}),
        (Kind.FORWARD, 2**32 - 1, {"flags": 3, "slices": 1}),
        (Kind.FORWARD, 64, {"flags": 3, "slices": MIDDLE.max_slices + 1}),
        (Kind.FORWARD, 64, {"flags": 0, "slices": 1}),
        (Kind.FORWARD, 64, {"flags": 1, "slices": 1}),
        (Kind.CANCEL, 9, {}),
        (Kind.CANCEL, 8, {"flags": 1}),
        (Kind.CANCEL, 8, {"sequence": 1}),
        (Kind.PING, 8, {"epoch": 1}),
        (Kind.GOODBYE, CONTROL_BODY + 1, {}),
        (Kind.RESULT, 64, {"slices": 1}),
        (Kind.OPEN, 64, {}),
        (Kind.HELLO, 68, {}),
    ],
)
def test_a_header_is_refused_before_its_body_is_allocated(
    kind: Kind, length: int, fields: dict[str, int]
) -> None:
    receiver = Pair(State.UPSTREAM, MIDDLE).listener
    receiver.receive_data(pack_untagged(kind, length, **fields) + NO_TAG)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            receiver.next_event()
        assert tracemalloc.get_traced_memory()[1] < 32 * 1024
    finally:
        tracemalloc.stop()


def test_before_open_nothing_larger_than_a_control_frame_is_accepted() -> None:
    receiver = Pair(State.ATTACHING).listener
    receiver.receive_data(pack_untagged(Kind.ATTACH, CONTROL_BODY + 1) + NO_TAG)
    with pytest.raises(RemoteProtocolError, match="agreed were at most 65536"):
        receiver.next_event()


def test_large_bodies_are_collected_without_quadratic_copying() -> None:
    """The memory at the peak is the body, the chunk in hand and small change."""
    pair = Pair(State.CONTROL)
    reason = Error(FaultCode.LINK, "x" * 2048, "y" * 2048)
    wire = joined(pair.listener.send(reason))
    tracemalloc.start()
    try:
        for position in range(0, len(wire), 16):
            pair.dialler.receive_data(wire[position : position + 16])
            event = pair.dialler.next_event()
        assert event == reason
        assert tracemalloc.get_traced_memory()[1] < 8 * len(wire)
    finally:
        tracemalloc.stop()


def test_hidden_rows_are_not_copied_on_the_way_out() -> None:
    pair = Pair(State.UPSTREAM, MIDDLE)
    frame = forward(VERIFY, rows=3)
    assert frame.hidden is not None
    header_and_small, small, view = pair.dialler.send(frame)
    assert len(header_and_small) == HEADER_BYTES
    assert isinstance(view, memoryview)
    assert (len(view), len(small) % 16) == (24, 0)
    frame.hidden[0, 0] = 123
    assert bytes(view[:2]) == frame.hidden[0, :1].tobytes()


def test_arrays_of_a_received_frame_are_aligned_views_that_belong_to_it() -> None:
    pair = Pair(State.UPSTREAM, MIDDLE)
    (event,) = pair.send(Side.DIALLER, forward(VERIFY, FILL, rows=4))
    assert isinstance(event, Forward)
    assert event.hidden is not None
    assert event.hidden.ctypes.data % 16 == 0
    assert not event.hidden.flags.owndata
    assert not event.slices[0].token_ids.flags.owndata


def test_the_link_survives_a_rule_that_we_broke() -> None:
    pair = Pair(State.UPSTREAM, FIRST)
    with pytest.raises(LocalProtocolError, match="STATS_REQUEST must not be sent on an upstream data link"):
        pair.dialler.send(StatsRequest())
    with pytest.raises(LocalProtocolError, match="hidden rows travel"):
        pair.dialler.send(forward(VERIFY, rows=3))
    assert pair.send(Side.DIALLER, Ping(4)) == [Ping(4)]


@pytest.mark.parametrize("state", [state for state in State if state is not State.HANDSHAKE])
@pytest.mark.parametrize("sender", Side)
def test_the_table_is_what_both_ends_enforce(state: State, sender: Side) -> None:
    for sample in SAMPLES:
        pair = Pair(state, sample.limits)
        kind = Kind[_kind_name(sample.frame)]
        is_first_open = kind is not Kind.OPEN or state is State.OPENING
        if kind in LEGAL[state][sender] and is_first_open:
            assert len(pair.send(sender, sample.frame)) == 1
        else:
            with pytest.raises(LocalProtocolError):
                pair.of(sender).send(sample.frame)
            header = pack_untagged(kind, 0) + NO_TAG
            pair.of(sender.other).receive_data(header)
            with pytest.raises(RemoteProtocolError):
                pair.of(sender.other).next_event()


def _kind_name(frame: object) -> str:
    names = {"NotYet": "NOT_YET", "StatsRequest": "STATS_REQUEST"}
    name = type(frame).__name__
    return names.get(name, name.upper())


def test_nothing_is_sent_before_the_handshake_is_done() -> None:
    dialler = Connection.dialler(KEY, purpose=Purpose.CONTROL)
    with pytest.raises(LocalProtocolError, match="must not be sent on handshake"):
        dialler.send(Ping(1))
    assert not dialler.may_send


def test_goodbye_ends_one_direction() -> None:
    pair = Pair(State.CONTROL)
    assert pair.send(Side.LISTENER, Goodbye("bye")) == [Goodbye("bye")]
    assert not pair.listener.may_send
    with pytest.raises(LocalProtocolError, match="has ended"):
        pair.listener.send(Pong(1))
    assert pair.send(Side.DIALLER, Ping(1)) == [Ping(1)]
    pair.dialler.receive_data(pack_untagged(Kind.PONG, 8) + NO_TAG)
    with pytest.raises(RemoteProtocolError, match="PONG after GOODBYE"):
        pair.dialler.next_event()


def test_open_again_must_be_a_later_epoch_of_the_same_chain() -> None:
    pair = Pair(State.CONTROL)
    with pytest.raises(LocalProtocolError, match="epoch 3 after epoch 3"):
        pair.dialler.send(opened(1, epoch=3))
    assert pair.send(Side.DIALLER, opened(1, epoch=4)) == [opened(1, epoch=4)]


def test_a_refused_data_link_carries_no_batch() -> None:
    pair = Pair(State.REFUSED, FIRST)
    with pytest.raises(LocalProtocolError):
        pair.dialler.send(Cancel(EPOCH, SessionId(1), 0))
    with pytest.raises(LocalProtocolError):
        pair.listener.send(Attached())


def test_bytes_missing_says_how_much_to_read() -> None:
    pair = Pair(State.UPSTREAM, MIDDLE)
    wire = joined(pair.dialler.send(Close(EPOCH, SessionId(1))))
    assert (pair.listener.bytes_missing, pair.listener.frame_bytes) == (HEADER_BYTES, 0)
    pair.listener.receive_data(wire[:10])
    assert pair.listener.next_event() is NEED_DATA
    assert pair.listener.bytes_missing == HEADER_BYTES - 10
    pair.listener.receive_data(wire[10:41])
    assert pair.listener.next_event() is NEED_DATA
    assert (pair.listener.bytes_missing, pair.listener.frame_bytes) == (3, 4)
