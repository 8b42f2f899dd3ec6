"""A recording of the panel: JSON lines, a header and then a line a view (pure but for the file it is given).

A line holds the snapshot and the places of the tabs. Blocks of the timeline and events stand in the line of
the first view that had them. No text of a chat is in it, only numbers, addresses and events.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TextIO, Union, get_args, get_origin, get_type_hints

from fleetchat.app.panel.view import PanelView
from fleetchat.errors import InputError
from fleetchat.fleet.event_log import FleetEvent
from fleetchat.fleet.telemetry import FleetSnapshot
from fleetchat.fleet.timeline import Block

FORMAT, VERSION = "fleetchat recording", 1
MAX_BYTES = 64 * 2**20  # some two hours of two stages
END_BYTES = 64  # kept free for the last line
MAX_LINE = 16 * 2**20  # bytes; a longer line is none of ours
MOST_TABS = 10_000
SEPARATE = {"timeline", "events"}  # of a snapshot: their parts stand in a line once


@dataclass(frozen=True, slots=True)
class Frame:
    """One line: a view without timeline and events, and what is new of these."""

    view: PanelView
    start: float  # of the timeline, seconds of the coordinator's clock
    end: float
    complete_until: float
    blocks: tuple[Block, ...]
    events: tuple[FleetEvent, ...]


class RecordingWriter:
    """Writes to an open text file until the limit or the end of the disk; `ended` says why it ended."""

    def __init__(self, file: TextIO, *, max_bytes: int = MAX_BYTES) -> None:
        self._file = file
        self._left = max_bytes - END_BYTES
        self._last_event = 0
        self.written = 0
        self.ended = ""
        self._put({"format": FORMAT, "version": VERSION})

    def write(self, view: PanelView, blocks: Iterable[Block]) -> None:
        """A view, and the blocks that it brought."""
        snapshot = view.snapshot
        timeline = snapshot.timeline
        events = [event for event in snapshot.events if event.number > self._last_event]
        if events:
            self._last_event = events[-1].number
        self._put(
            {
                "snapshot": _plain(snapshot),
                "tabs": [[session, place] for session, place in view.tabs.items()],
                "time": [timeline.start, timeline.end, timeline.complete_until] if timeline else None,
                "blocks": [
                    [one.lane, one.session, one.kind.value, one.rows, one.start, one.end] for one in blocks
                ],
                "events": [asdict(event) for event in events],
            }
        )

    def close(self) -> None:
        """End the file. Never raises."""
        reason, self.ended = self.ended or "closed", ""
        self._left += END_BYTES
        self._put({"end": reason})
        self.ended = reason
        with suppress(OSError):
            self._file.close()

    def _put(self, document: Mapping[str, object]) -> None:
        if self.ended:
            return
        line = json.dumps(document, separators=(",", ":")) + "\n"
        if len(line) > self._left:
            self.ended = "limit"
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self.ended = error.strerror or "the disk"
            return
        self._left -= len(line)
        self.written += len(line)


def open_recording(path: Path) -> TextIO:
    """An empty file. Raises InputError."""
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def read_header(line: bytes, name: str) -> None:
    """Raises InputError when this is no recording that can be read."""
    try:
        header = _read_json(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{name} is no recording of the fleet panel")
    if header.get("version") != VERSION:
        raise InputError(
            f"{name} has the format {header.get('version')}, this version reads {VERSION}",
            hint="use the version of fleetchat that recorded it, or a newer one",
        )


def read_frame(line: bytes) -> Frame | None:
    """One line; None for the one that ends a recording. Raises ValueError for anything else."""
    document = _read_json(line)
    if not isinstance(document, dict):
        raise ValueError("it is no object")
    if "end" in document:
        return None
    try:
        snapshot = _built(FleetSnapshot, {**document["snapshot"], "timeline": None, "events": []})
        tabs = {_built(int, session): _place(place) for session, place in document["tabs"]}
        times = document["time"] or (snapshot.taken, snapshot.taken, snapshot.taken)
        start, end, complete = (_built(float, time) for time in times)
        names = [one.name for one in fields(Block)]
        blocks = tuple(_built(Block, dict(zip(names, one, strict=True))) for one in document["blocks"])
        events = tuple(_built(FleetEvent, one) for one in document["events"])
        view = PanelView(snapshot, tabs)
        for at in (snapshot.taken, *(event.at for event in events)):
            view.time_of_day(at)  # there is one
        return Frame(view, start, end, complete, blocks, events)
    except (KeyError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise ValueError("something in it is missing or wrong") from error


def _read_json(line: bytes) -> Any:
    """Raises ValueError, also for what Python's reader takes though it is no JSON."""
    if len(line) > MAX_LINE:
        raise ValueError("it is too long")
    try:
        return json.loads(line, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        raise ValueError("it is no JSON") from error


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no number")


def with_events(view: PanelView, events: tuple[FleetEvent, ...]) -> PanelView:
    """The view as it was, with the events up to then."""
    return replace(view, snapshot=replace(view.snapshot, events=events))


def _plain(value: object) -> Any:
    """A value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: _plain(getattr(value, one.name)) for one in fields(value) if one.name not in SEPARATE
        }
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, Enum) else value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _built(kind: Any, raw: Any) -> Any:
    """The value of a type from its JSON. Raises ValueError, TypeError."""
    if get_origin(kind) in (Union, UnionType):
        wanted = [one for one in get_args(kind) if one is not type(None)]
        return None if raw is None else _built(wanted[0], raw)
    if get_origin(kind) is tuple:
        return tuple(_built(get_args(kind)[0], one) for one in _expect(raw, list))
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _built(hints[name], one) for name, one in _expect(raw, dict).items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    if kind is float:
        return _finite(float(_expect(raw, (int, float))))
    if kind is int and abs(_expect(raw, int)) >= 2**63:
        raise ValueError("a number in it is too large")
    return _expect(raw, kind)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a number in it is too large")
    return value


def _place(raw: Any) -> int:
    """Of a tab, from 1."""
    place: int = _built(int, raw)
    if not 1 <= place <= MOST_TABS:
        raise ValueError(f"there is no tab {place}")
    return place


def _expect(raw: Any, kind: Any) -> Any:
    if not isinstance(raw, kind) or (isinstance(raw, bool) and kind is not bool):
        raise ValueError("something in it is missing or wrong")
    return raw
