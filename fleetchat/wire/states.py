"""Who may send what, where: one table.

Two rules: the dialler's first frame says what the link becomes (OPEN: control, ATTACH: data, OFFER: shard)
and must agree with the purpose of the handshake; data flows only after ATTACHED. PING and PONG are legal on
every link.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum

from fleetchat.wire.frames import Attach, AttachRole, Frame
from fleetchat.wire.kinds import Kind


class Purpose(IntEnum):
    """What a link is for; the number travels in HELLO and is authenticated."""

    CONTROL = 1
    DATA = 2
    SHARD = 3  # a peer gets the files of its shard
    MEASURE = 4  # a peer is timed


class Side(IntEnum):
    """The two ends of a link; the number is the direction in a tag."""

    DIALLER = 0
    LISTENER = 1

    @property
    def other(self) -> Side:
        return Side(1 - self)


class State(Enum):
    """Where a link is in its life."""

    __hash__ = object.__hash__  # Enum's own is Python code, and every frame looks its state up

    HANDSHAKE = "handshake"
    OPENING = "a control link before OPEN"
    CONTROL = "a control link"
    ATTACHING = "a data link before ATTACH"
    ATTACHING_UPSTREAM = "an upstream data link before ATTACHED"
    ATTACHING_RETURN = "a return data link before ATTACHED"
    UPSTREAM = "an upstream data link"
    RETURN = "a return data link"
    REFUSED = "a data link that was refused"
    OFFERING = "a shard link before OFFER"
    OFFERED = "a shard link"
    MEASURING = "a measuring link"


STEADY = frozenset({Kind.FORWARD, Kind.RESULT})  # the frequent ones, which leave the state as it is
_ALWAYS = frozenset({Kind.PING, Kind.PONG, Kind.GOODBYE})
_FAULT = _ALWAYS | {Kind.ERROR}
_ANSWER = _FAULT | {Kind.ATTACHED, Kind.NOT_YET}
_IN_BAND = frozenset({Kind.CANCEL, Kind.CLOSE, Kind.COMPACT, Kind.FORK})

# What the dialler may send, what the listener may send.
LEGAL: Mapping[State, tuple[frozenset[Kind], frozenset[Kind]]] = {
    State.HANDSHAKE: (frozenset(), frozenset()),
    State.OPENING: (_ALWAYS | {Kind.OPEN}, _FAULT),
    State.CONTROL: (
        _ALWAYS | {Kind.OPEN, Kind.STATS_REQUEST},
        _FAULT | {Kind.PROGRESS, Kind.READY, Kind.STATS},
    ),
    State.ATTACHING: (_ALWAYS | {Kind.ATTACH}, _FAULT),
    State.ATTACHING_UPSTREAM: (_ALWAYS, _ANSWER),
    State.ATTACHING_RETURN: (_ALWAYS, _ANSWER),
    State.UPSTREAM: (_ALWAYS | _IN_BAND | {Kind.FORWARD}, _FAULT),
    State.RETURN: (_ALWAYS, _FAULT | {Kind.RESULT}),
    State.REFUSED: (_ALWAYS, _ALWAYS),
    State.OFFERING: (_ALWAYS | {Kind.OFFER}, _FAULT),
    State.OFFERED: (_ALWAYS | {Kind.CHUNK}, _FAULT | {Kind.HAVE, Kind.KEPT, Kind.STORED}),
    State.MEASURING: (_ALWAYS | {Kind.MEASURE, Kind.CHUNK}, _FAULT | {Kind.MEASURED, Kind.KEPT}),
}

_NEXT: Mapping[tuple[State, Kind], State] = {
    (State.OPENING, Kind.OPEN): State.CONTROL,
    (State.OFFERING, Kind.OFFER): State.OFFERED,
    (State.ATTACHING_UPSTREAM, Kind.ATTACHED): State.UPSTREAM,
    (State.ATTACHING_RETURN, Kind.ATTACHED): State.RETURN,
    (State.ATTACHING_UPSTREAM, Kind.NOT_YET): State.REFUSED,
    (State.ATTACHING_RETURN, Kind.NOT_YET): State.REFUSED,
    (State.ATTACHING_UPSTREAM, Kind.ERROR): State.REFUSED,
    (State.ATTACHING_RETURN, Kind.ERROR): State.REFUSED,
}


_FIRST: Mapping[Purpose, State] = {
    Purpose.CONTROL: State.OPENING,
    Purpose.DATA: State.ATTACHING,
    Purpose.SHARD: State.OFFERING,
    Purpose.MEASURE: State.MEASURING,
}


def first_state(purpose: Purpose) -> State:
    """After the handshake."""
    return _FIRST[purpose]


def next_state(state: State, kind: Kind, frame: Frame) -> State:
    """After a frame that was legal in `state`."""
    if isinstance(frame, Attach):
        upstream = frame.role is AttachRole.UPSTREAM
        return State.ATTACHING_UPSTREAM if upstream else State.ATTACHING_RETURN
    return _NEXT.get((state, kind), state)


def is_legal(state: State, side: Side, kind: Kind) -> bool:
    """May `side` send `kind` on a link in `state`?"""
    return kind in LEGAL[state][side]
