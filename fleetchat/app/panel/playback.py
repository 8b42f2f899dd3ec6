"""A recording as it is played: where it stands, how fast it goes, and what is seen there.

Pure but for reading: the file is read once to find its lines; a line is parsed again when it is shown.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.recording import MAX_LINE, Frame, read_frame, read_header, with_events
from fleetchat.errors import InputError
from fleetchat.fleet.event_log import KEPT_EVENTS, FleetEvent
from fleetchat.fleet.timeline import DRAFT_LANE, Block, Lane, TimelineSnapshot

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
LOOK_BACK = 12.0  # seconds of blocks that are gathered again after a jump


class Recording:
    """The frames of a file, by number. Times are seconds from the first frame."""

    def __init__(self, path: Path) -> None:
        """Raises InputError: no such file, no recording, or nothing in it."""
        self._path = path
        self._places: list[int] = []
        self.times: list[float] = []
        self._events: list[tuple[int, FleetEvent]] = []  # the frame that has it
        self.end = "the program was ended"  # why there is no more
        try:
            self._read()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        if not self.times:
            raise InputError(
                f"{path} holds no view of a fleet", hint="it was ended before the fleet was ready"
            )

    def _read(self) -> None:
        with self._path.open("rb") as file:
            read_header(file.readline(MAX_LINE), str(self._path))
            began = clock = last = 0.0
            while True:
                place = file.tell()
                line = file.readline(MAX_LINE + 1)
                if len(line) <= MAX_LINE and not line.endswith(b"\n"):
                    return  # the last line is missing or half written: the program was killed
                frame = self._parse(line, len(self._places) + 2)
                if frame is None:
                    self.end = "it was ended"
                    return
                if not self._places or frame.end < last:  # a fleet was started anew, with another clock
                    began = clock + (0.25 if self._places else 0.0) - frame.end
                last = frame.end
                clock = began + frame.end
                self._places.append(place)
                self.times.append(clock)
                self._events += [(len(self._places) - 1, event) for event in frame.events]

    def _parse(self, line: bytes, number: int) -> Frame | None:
        try:
            return read_frame(line)
        except ValueError as error:
            raise InputError(
                f"{self._path} is damaged in line {number}: {error}",
                hint="what stands before that line can be shown: copy it into a file of its own",
            ) from None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def length(self) -> float:
        """Seconds."""
        return self.times[-1]

    def frame(self, number: int) -> Frame:
        with self._path.open("rb") as file:
            file.seek(self._places[number])
            frame = self._parse(file.readline(), number + 2)
        assert frame is not None
        return frame

    def number_at(self, seconds: float) -> int:
        """The frame that is seen then."""
        return max(0, bisect_right(self.times, seconds) - 1)

    def events_at(self, number: int) -> tuple[FleetEvent, ...]:
        """What had happened by then."""
        return tuple(event for frame, event in self._events if frame <= number)[-KEPT_EVENTS:]


class Playback:
    """Position, speed and pause. `model` always is what the panel had at the position."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.model = PanelModel()
        self.position = 0.0
        self.speed = 1.0
        self.paused = False
        self._number = -1
        self._show()

    @property
    def at_end(self) -> bool:
        return self.position >= self.recording.length

    def advance(self, seconds: float) -> None:
        """Real time passed."""
        if not self.paused:
            self.seek(self.position + seconds * self.speed)
            self.paused = self.at_end

    def seek(self, position: float) -> None:
        self.position = min(max(0.0, position), self.recording.length)
        self._show()

    def step(self, frames: int) -> None:
        """Stand still, so many frames on."""
        self.paused = True
        number = min(max(self._number + frames, 0), len(self.recording) - 1)
        self.seek(self.recording.times[number])

    def toggle(self) -> None:
        """Stand still or go on; from the beginning when the end was reached."""
        if self.paused and self.at_end:
            self.seek(0.0)
        self.paused = not self.paused

    def faster(self, steps: int) -> None:
        place = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[min(max(place, 0), len(SPEEDS) - 1)]

    def _show(self) -> None:
        number = self.recording.number_at(self.position)
        if number == self._number:
            return
        first = self.recording.number_at(self.recording.times[number] - LOOK_BACK)
        if first <= self._number < number:
            first = self._number + 1
        else:
            self.model.forget()
        for passed in range(first, number + 1):
            self._take(passed)
        self._number = number

    def _take(self, number: int) -> None:
        frame = self.recording.frame(number)
        lanes = range(len(frame.view.snapshot.stages))
        self.model.take(with_events(frame.view, self.recording.events_at(number)))
        self.model.blocks.take(
            TimelineSnapshot(
                frame.start,
                frame.end,
                frame.complete_until,
                tuple(_lane(lane, frame.blocks) for lane in lanes),
                _lane(DRAFT_LANE, frame.blocks),
            )
        )


def _lane(lane: int, blocks: tuple[Block, ...]) -> Lane:
    """The blocks of one lane; its share is worked out from the window that is shown."""
    return Lane(lane, tuple(block for block in blocks if block.lane == lane), 0.0)


def clock_words(seconds: float) -> str:
    """`03:07`, `1:00:00`."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes:02d}:{whole % 60:02d}"
