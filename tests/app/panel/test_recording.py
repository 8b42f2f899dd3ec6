"""What is recorded is seen again, whatever happened to the file."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fleetchat.app.panel.layout import Watching, full_lines
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.playback import SPEEDS, Playback, Recording, clock_words
from fleetchat.app.panel.recording import MAX_LINE, RecordingWriter, open_recording, read_frame
from fleetchat.app.panel.view import PanelView
from fleetchat.app.recorder import PanelRecorder
from fleetchat.errors import InputError
from tests.fakes.panel import EVENTS, busy_view, hot_view, lost_view, prefill_view
from tests.fakes.runtime import snapshot

BEGAN = 100.0
STEP = 0.25


def run_views(count: int = 60) -> list[PanelView]:
    """A quarter of a second each; events come one by one."""
    views = []
    for number in range(count):
        view = busy_view(BEGAN + number * STEP)
        changed = replace(
            view.snapshot, events=EVENTS[: number // 20], tokens_per_s=number / 3, waiting=number % 3
        )
        views.append(PanelView(changed, {1: 1, 2: 2} if number < 30 else {2: 1}))
    return views


def record(path: Path, views: list[PanelView], *, max_bytes: int = 1 << 24) -> list[list[object]]:
    """Write a recording; returns what the live panel showed at each view."""
    writer = RecordingWriter(open_recording(path), max_bytes=max_bytes)
    model, shown = PanelModel(), []
    for view in views:
        writer.write(view, model.take(view))
        shown.append(full_lines(view, model.blocks, Watching(), 138, 40))
    writer.close()
    return shown


def screen(playback: Playback, seconds: float = 1.0) -> list[object]:
    assert playback.model.view is not None
    return full_lines(playback.model.view, playback.model.blocks, Watching(seconds=seconds), 138, 40)


def test_the_replay_shows_the_screens_of_the_live_run(tmp_path: Path) -> None:
    shown = record(tmp_path / "run.jsonl", run_views())
    recording = Recording(tmp_path / "run.jsonl")
    assert (len(recording), recording.length, recording.end) == (60, 59 * STEP, "it was ended")
    playback = Playback(recording)
    for number, expected in enumerate(shown):
        assert screen(playback) == expected, number
        playback.advance(STEP)
    assert playback.at_end


@pytest.mark.parametrize(
    "places", [(14.75,), (3.0, 2.75, 3.0), (14.0, 0.0, 13.5), (0.25, 12.5, 12.0, 99.0), (-1.0, 7.3)]
)
def test_a_jump_shows_what_playing_shows(tmp_path: Path, places: tuple[float, ...]) -> None:
    record(tmp_path / "run.jsonl", run_views())
    playback = Playback(Recording(tmp_path / "run.jsonl"))
    for place in places:
        playback.seek(place)
        number = playback.recording.number_at(playback.position)
        fresh = PanelModel()
        for view in run_views()[: number + 1]:
            fresh.take(view)
        assert fresh.view is not None
        expected = full_lines(fresh.view, fresh.blocks, Watching(seconds=10.0), 138, 40)
        assert screen(playback, 10.0) == expected


@pytest.mark.parametrize(
    "view", [busy_view(), hot_view(), lost_view(), prefill_view(), PanelView(snapshot())]
)
def test_a_view_comes_back_as_it_was(view: PanelView) -> None:
    file = io.StringIO()
    writer = RecordingWriter(file)
    model = PanelModel()
    writer.write(view, model.take(view))
    frame = read_frame(file.getvalue().splitlines()[1].encode())
    assert frame is not None
    assert frame.view == PanelView(replace(view.snapshot, timeline=None, events=()), view.tabs)
    assert frame.events == view.snapshot.events
    if view.snapshot.timeline is not None:
        lanes = (*view.snapshot.timeline.stages, view.snapshot.timeline.drafting)
        assert frame.blocks == tuple(block for lane in lanes for block in lane.blocks)


def test_a_recording_ends_at_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "small.jsonl"
    record(path, run_views(), max_bytes=40_000)
    assert path.stat().st_size <= 40_000
    assert json.loads(path.read_text().splitlines()[-1]) == {"end": "limit"}
    assert 3 < len(Recording(path)) < 60


def test_a_killed_program_leaves_a_recording_that_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "killed.jsonl"
    shown = record(path, run_views(10))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:9]) + lines[9][:100])
    recording = Recording(path)
    assert (len(recording), recording.end) == (8, "the program was ended")
    playback = Playback(recording)
    playback.seek(99.0)
    assert screen(playback) == shown[7]


def test_a_fleet_that_was_started_anew_goes_on_in_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    views = [*run_views(5), *run_views(5)]
    record(path, views)
    recording = Recording(path)
    assert recording.times == pytest.approx([STEP * number for number in range(10)])


def test_a_full_disk_ends_the_recording() -> None:
    class FullDisk(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    writer = RecordingWriter(FullDisk())
    writer.write(busy_view(), [])
    assert writer.ended == "No space left on device"
    writer.close()
    assert writer.ended == "No space left on device"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no recording"),
        (b"hello\n", "is no recording"),
        (b"\xff\xfe\n", "is no recording"),
        (b'{"format":"other"}\n', "is no recording"),
        (b'{"format":"fleetchat recording","version":9}\n', "has the format 9"),
        (b'{"format":"fleetchat recording","version":1}\n', "holds no view"),
        (b'{"format":"fleetchat recording","version":1}\n[1]\n', "line 2"),
        (
            b'{"format":"fleetchat recording","version":1}\n{"tabs":[]}\n',
            "is damaged in line 2: something in it is missing",
        ),
        (b'{"format":"fleetchat recording","version":1}\n{"snapshot":{"model":1}}\n', "line 2"),
        (b'{"format":"fleetchat recording","version":1}\nx\n', "line 2: it is no JSON"),
        (b'{"format":"fleetchat recording","version":1}\n' + b"[" * 200_000 + b"\n", "line 2: it is nested"),
        (b'{"format":"fleetchat recording","version":1}\n' + b"7" * (MAX_LINE + 1), "line 2: it is too long"),
    ],
    ids=range(12),
)
def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        Recording(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        Recording(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be written"):
        open_recording(tmp_path / "none" / "file")


def test_foreign_types_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, run_views(1))
    header, line, end = path.read_text().splitlines()
    document = json.loads(line)
    document["snapshot"]["stages"][0]["compute_ms"]["p50"] = "fast"
    path.write_text("\n".join([header, json.dumps(document), end]) + "\n")
    with pytest.raises(InputError, match="is damaged in line 2: something in it is missing or wrong"):
        Recording(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"taken":', '"taken":NaN,"was":'),
        ('"taken":', '"taken":1e999,"was":'),
        ('"wall_shift":', '"wall_shift":1e300,"was":'),
        ('"evictions":', '"evictions":1' + "0" * 400 + ',"was":'),
        ('"tabs":[[1,1]', '"tabs":[[1,-90]'),
        ('"time":[', '"time":[1e999,'),
    ],
    ids=range(6),
)
def test_numbers_that_cannot_be_shown_are_refused(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "run.jsonl"
    record(path, run_views(1))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match="is damaged in line 2"):
        Recording(path)


def playback_of(tmp_path: Path) -> Playback:
    record(tmp_path / "run.jsonl", run_views(41))
    return Playback(Recording(tmp_path / "run.jsonl"))


def test_speed_pause_and_steps(tmp_path: Path) -> None:
    playback = playback_of(tmp_path)
    playback.faster(1)
    playback.advance(1.0)
    assert (playback.speed, playback.position) == (2.0, 2.0)
    playback.toggle()
    playback.advance(1.0)
    assert playback.position == 2.0
    playback.step(-1)
    assert playback.position == 2.0 - STEP
    playback.step(3)
    assert (playback.position, playback.paused) == (2.0 + 2 * STEP, True)
    playback.faster(99)
    assert playback.speed == SPEEDS[-1]
    playback.faster(-99)
    assert playback.speed == SPEEDS[0]


def test_at_its_end_it_stands_still_and_begins_again(tmp_path: Path) -> None:
    playback = playback_of(tmp_path)
    playback.advance(60.0)
    assert (playback.position, playback.paused, playback.at_end) == (10.0, True, True)
    playback.toggle()
    assert (playback.position, playback.paused) == (0.0, False)
    playback.seek(-5.0)
    assert playback.position == 0.0


def test_the_writing_thread_writes_all(tmp_path: Path) -> None:
    recorder = PanelRecorder(tmp_path / "run.jsonl")
    model = PanelModel()
    for view in run_views(20):
        recorder.take(view, model.take(view))
    assert recorder.close(10.0)
    assert recorder.ended == "closed"
    assert recorder.written == (tmp_path / "run.jsonl").stat().st_size
    assert len(Recording(tmp_path / "run.jsonl")) == 20
    recorder.take(busy_view(), [])


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "00:00"), (59.9, "00:59"), (187.0, "03:07"), (3600.0, "1:00:00")]
)
def test_clock_words(seconds: float, words: str) -> None:
    assert clock_words(seconds) == words
