"""One table of sample frames that drives encoder, decoder and state tests; two connections joined by hand."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import NamedTuple

import numpy as np

from fleetchat.ids import Address, BatchSequence, BuildKey, ChainId, Epoch, SessionId, StageIndex
from fleetchat.wire.frames import (
    INITIAL_LIMITS,
    Attach,
    Attached,
    AttachRole,
    Cancel,
    Chunk,
    Close,
    Compact,
    Draw,
    Error,
    FaultCode,
    Fork,
    Forward,
    Frame,
    Goodbye,
    Have,
    Kept,
    Limits,
    Measure,
    Measured,
    NotYet,
    Offer,
    Open,
    Ping,
    Pong,
    Progress,
    Ready,
    Result,
    ResultStatus,
    SessionStats,
    ShardFile,
    Slice,
    SliceResult,
    SliceStatus,
    StageTiming,
    Stats,
    StatsRequest,
    Stored,
    WireDtype,
)
from fleetchat.wire.limits import downstream_limits, upstream_limits
from fleetchat.wire.protocol import NEED_DATA, Buffers, Connection, Event, HandshakeDone
from fleetchat.wire.states import Purpose, Side, State

KEY = bytes(range(32))
CHAIN = ChainId("0123456789abcdef" * 2)
EPOCH = Epoch(3)
WIDTH = 4
VOCABULARY = 1000


def opened(stage: int = 1, stages: int = 3, epoch: int = 3, dtype: WireDtype = WireDtype.F16) -> Open:
    return Open(
        chain=CHAIN,
        epoch=Epoch(epoch),
        build_key=BuildKey("89abcdef" * 8),
        stage=StageIndex(stage),
        stages=stages,
        first_layer=4,
        last_layer=7,
        vocabulary=VOCABULARY,
        hidden=WIDTH,
        wire_dtype=dtype,
        precision="fast",
        engine="masked",
        next_address=None if stage == stages - 1 else Address("fe80::1%eth0", 7447),
        cells_wanted=2048,
        max_rows=16,
        max_slices=4,
    )


MIDDLE = upstream_limits(opened(1))
MIDDLE_F32 = upstream_limits(opened(1, dtype=WireDtype.F32))
FIRST = upstream_limits(opened(0))
LAST = downstream_limits(opened(2))

DRAW = Draw(temperature=0.7, top_p=0.95, top_k=40, penalty=1.1, seed=2**64 - 1, reply_start=17)
TIMING = StageTiming(
    queue_us=12, compute_us=2**40, received_bytes=999, cells=((5, 0), (2**32 - 1, 7), (0, 0))
)


def slice_of(session: int, *ids: int, drafts: int = 0, draw: Draw | None = None) -> Slice:
    return Slice(SessionId(session), 20, 2, np.array(ids, np.int32), drafts, draw)


def failed_slice(session: int, *ids: int) -> Slice:
    ids_array = np.array(ids, np.int32)
    return Slice(
        SessionId(session),
        0,
        0,
        ids_array,
        status=SliceStatus.FAILED,
        fault_code="gap",
        fault_text="first 9 > 4 – ✂",
    )


VERIFY = slice_of(1, 5, 6, 999, drafts=2, draw=DRAW)
FILL = slice_of(2**32 - 1, 0)
FAILED = failed_slice(7, 8, 9)


def hidden(rows: int, dtype: WireDtype = WireDtype.F16) -> np.ndarray[tuple[int, int], np.dtype[np.floating]]:
    return (np.arange(rows * WIDTH).reshape(rows, WIDTH) / 8).astype(dtype.numpy)


def forward(*slices: Slice, sequence: int = 9, rows: int | None = None, **more: object) -> Forward:
    return Forward(EPOCH, BatchSequence(sequence), slices, None if rows is None else hidden(rows), **more)  # type: ignore[arg-type]


class Sample(NamedTuple):
    """A frame, who sends it, on a link in which state, and under which limits."""

    frame: Frame
    sender: Side
    state: State
    limits: Limits


_D, _L = Side.DIALLER, Side.LISTENER
OFFER = Offer(
    BuildKey("89abcdef" * 8),
    StageIndex(1),
    (ShardFile("manifest.json", 700, "0" * 64), ShardFile("stage-01.bin", 2**41, "f" * 64)),
    1 << 16,
)
_FULL = (VERIFY, FILL, FAILED)
_DRAWN = SliceResult(SessionId(1), ResultStatus.DRAWN, 2, 999)
_RESULTS = (
    _DRAWN,
    SliceResult(SessionId(4), ResultStatus.NO_DRAW),
    SliceResult(SessionId(7), ResultStatus.FAILED, fault_code="non-finite", fault_text="row 0"),
)
SAMPLES = [
    Sample(opened(1), _D, State.OPENING, LAST),
    Sample(opened(2), _D, State.OPENING, LAST),
    Sample(Progress('loading "a\\b" ✓', 3, 7), _L, State.CONTROL, LAST),
    Sample(
        Ready("0.1.0", "2026.4.1", "CPU", 2**40, 4096, 3, "masked", 1, False, 1, "passed", "f32 (measured)"),
        _L,
        State.CONTROL,
        LAST,
    ),
    Sample(Ping(2**64 - 1), _D, State.CONTROL, LAST),
    Sample(Pong(0), _L, State.UPSTREAM, MIDDLE),
    Sample(StatsRequest(), _D, State.CONTROL, LAST),
    Sample(
        Stats((SessionStats(SessionId(1), 10, 10, 3),), 4096, 13, 2, 77, 2**33, 150, 0),
        _L,
        State.CONTROL,
        LAST,
    ),
    Sample(Stats((), 0, 0, 0, 0, 0, 0, 0), _L, State.CONTROL, LAST),
    Sample(Error(FaultCode.CELLS, "4096 cells wanted, 100 free", "close a chain"), _L, State.CONTROL, LAST),
    Sample(Goodbye("stopped by its user"), _L, State.CONTROL, LAST),
    Sample(Attach(CHAIN, EPOCH, StageIndex(1), AttachRole.UPSTREAM), _D, State.ATTACHING, LAST),
    Sample(Attached(), _L, State.ATTACHING_RETURN, LAST),
    Sample(NotYet(), _L, State.ATTACHING_UPSTREAM, LAST),
    Sample(forward(VERIFY, FILL), _D, State.UPSTREAM, FIRST),
    Sample(forward(VERIFY, FILL, FAILED, rows=4, timings=(TIMING, TIMING)), _D, State.UPSTREAM, MIDDLE),
    Sample(
        Forward(EPOCH, BatchSequence(0), (VERIFY,), hidden(3, WireDtype.F32)), _D, State.UPSTREAM, MIDDLE_F32
    ),
    Sample(forward(FAILED, rows=0), _D, State.UPSTREAM, MIDDLE),
    Sample(Result(EPOCH, BatchSequence(9), _RESULTS, (TIMING,) * 3), _L, State.RETURN, LAST),
    Sample(Result(EPOCH, BatchSequence(2**32 - 1), (_DRAWN,)), _L, State.RETURN, LAST),
    Sample(Cancel(EPOCH, SessionId(5), 100), _D, State.UPSTREAM, MIDDLE),
    Sample(Close(EPOCH, SessionId(5)), _D, State.UPSTREAM, MIDDLE),
    Sample(Compact(EPOCH, SessionId(5)), _D, State.UPSTREAM, MIDDLE),
    Sample(Fork(EPOCH, SessionId(6), SessionId(5), 32), _D, State.UPSTREAM, MIDDLE),
    Sample(OFFER, _D, State.OFFERING, INITIAL_LIMITS),
    Sample(Have((700, 2**40)), _L, State.OFFERED, INITIAL_LIMITS),
    Sample(Chunk(1, 2**40, b"some of the weights"), _D, State.OFFERED, INITIAL_LIMITS),
    Sample(Kept(1, 2**40 + 19), _L, State.OFFERED, INITIAL_LIMITS),
    Sample(Stored(), _L, State.OFFERED, INITIAL_LIMITS),
    Sample(Measure(2048, 8192, 256), _D, State.MEASURING, INITIAL_LIMITS),
    Sample(
        Measured("0.1.0", "2026.4.1", "CPU", 2**34, 1200, 90_000, ""), _L, State.MEASURING, INITIAL_LIMITS
    ),
]
SAMPLE_IDS = [f"{type(sample.frame).__name__}-{number}".lower() for number, sample in enumerate(SAMPLES)]


def plain(value: object) -> object:
    """A frame as nested tuples, arrays as dtype, shape and bytes: comparable exactly."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value):
        return type(value).__name__, *[plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, memoryview):
        return "bytes", value.tobytes()
    if isinstance(value, tuple):
        return tuple(plain(entry) for entry in value)
    return type(value).__name__, value


def joined(buffers: Buffers) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)


def events(connection: Connection) -> list[Event]:
    """All events that are there now."""
    found: list[Event] = []
    while (event := connection.next_event()) is not NEED_DATA:
        found.append(event)
        assert len(found) < 1000
    return found


_PURPOSES = {
    State.OPENING: Purpose.CONTROL,
    State.CONTROL: Purpose.CONTROL,
    State.OFFERING: Purpose.SHARD,
    State.OFFERED: Purpose.SHARD,
    State.MEASURING: Purpose.MEASURE,
}


class Pair:
    """Two connections whose handshake is done, brought to `state`. `wire` records what each side wrote."""

    def __init__(self, state: State, limits: Limits | None = None) -> None:
        purpose = _PURPOSES.get(state, Purpose.DATA)
        self.dialler = Connection.dialler(KEY, purpose=purpose)
        self.listener = Connection.listener(KEY)
        self.wire: dict[Side, list[bytes]] = {Side.DIALLER: [], Side.LISTENER: []}
        self._carry(Side.DIALLER, self.dialler.start())
        for side in (Side.LISTENER, Side.DIALLER, Side.LISTENER, Side.DIALLER):
            event = self.of(side).next_event()
            assert event is NEED_DATA or isinstance(event, HandshakeDone)
            self._carry(side, self.of(side).bytes_to_send())
        self._advance(state)
        assert self.dialler.state is self.listener.state is state
        if limits is not None:
            self.dialler.set_limits(limits)
            self.listener.set_limits(limits)

    def of(self, side: Side) -> Connection:
        return self.dialler if side is Side.DIALLER else self.listener

    def send(self, side: Side, frame: Frame) -> list[Event]:
        """Carry a frame over; the events of the other side."""
        self._carry(side, self.of(side).send(frame))
        return events(self.of(side.other))

    def _carry(self, side: Side, buffers: Buffers) -> None:
        encoded = joined(buffers)
        if encoded:
            self.wire[side].append(encoded)
            self.of(side.other).receive_data(encoded)

    def _advance(self, state: State) -> None:
        if state is State.OFFERED:
            self.send(Side.DIALLER, OFFER)
        if state is State.CONTROL:
            self.send(Side.DIALLER, opened(1))
        if state in (State.ATTACHING_UPSTREAM, State.UPSTREAM, State.REFUSED):
            self.send(Side.DIALLER, Attach(CHAIN, EPOCH, StageIndex(1), AttachRole.UPSTREAM))
        if state in (State.ATTACHING_RETURN, State.RETURN):
            self.send(Side.DIALLER, Attach(CHAIN, EPOCH, StageIndex(1), AttachRole.RETURN))
        if state in (State.UPSTREAM, State.RETURN):
            self.send(Side.LISTENER, Attached())
        if state is State.REFUSED:
            self.send(Side.LISTENER, NotYet())


def pair_for(sample: Sample) -> Pair:
    return Pair(sample.state, sample.limits)
