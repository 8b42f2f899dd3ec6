"""The trace file: what a viewer reads of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleetchat.errors import InputError
from fleetchat.fleet.timeline import DRAFT_LANE, Block, WorkKind
from fleetchat.fleet.trace import TraceWriter, open_trace
from tests.fakes.chain import Letters, fake_fleet, request

BLOCK = Block(0, 3, WorkKind.DECODE, 1, 100.001, 100.009)


class KeptFile(io.StringIO):
    """Keeps its text when it is closed."""

    text = ""

    def close(self) -> None:
        self.text = self.getvalue()
        super().close()


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def written(blocks: list[Block], *, max_bytes: int = 10_000) -> list[dict[str, object]]:
    file = KeptFile()
    lanes = {DRAFT_LANE: "drafting", 0: "stage 0"}
    writer = TraceWriter(file, lanes, title="Tiny", began=100.0, max_bytes=max_bytes)
    for block in blocks:
        writer.write(block)
    writer.close()
    events = json.loads(file.text)
    assert isinstance(events, list)
    return events


def test_a_block_is_a_complete_event_in_its_lane() -> None:
    *metadata, event = written([BLOCK])
    assert event == {
        "name": "session 3 decode",
        "cat": "decode",
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "ts": 1000.0,
        "dur": 8000.0,
        "args": {"session": 3, "rows": 1},
    }
    names = {(one["name"], one["tid"]): one["args"] for one in metadata}
    assert names["process_name", 0] == {"name": "Tiny"}
    assert names["thread_name", 0] == {"name": "drafting"}
    assert names["thread_name", 1] == {"name": "stage 0"}


def test_a_full_trace_is_still_a_document() -> None:
    events = written([BLOCK] * 1000, max_bytes=3000)
    assert 10 < len(events) < 30
    assert events[-1]["ph"] == "X"


def test_a_full_disk_ends_the_trace_only() -> None:
    writer = TraceWriter(FullDisk(), {0: "stage 0"}, title="Tiny", began=0.0)
    writer.write(BLOCK)
    writer.close()


def test_a_trace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be written to .*missing"):
        open_trace(tmp_path / "missing" / "trace.json")


@pytest.mark.trio
async def test_a_fleet_writes_what_its_stages_did(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    async with fake_fleet(2, trace_file=file) as fake:
        session = fake.fleet.new_session()
        await fake.fleet.generate(
            session, request([1, 2, 3], max_tokens=6), Letters(), on_text=lambda text: None
        )
        snapshot = fake.fleet.snapshot(timeline_seconds=10.0)
    events = [one for one in json.loads(file.read_text()) if one["ph"] == "X"]
    for stage in (0, 1):
        lane = [one for one in events if one["tid"] == stage + 1]
        assert [one["cat"] for one in lane] == ["prefill"] + ["decode"] * 5
        assert [one["args"]["rows"] for one in lane] == [3, 1, 1, 1, 1, 1]
        assert all(one["args"]["session"] == session.number for one in lane)
        assert snapshot.timeline is not None
        blocks = snapshot.timeline.stages[stage].blocks
        assert [round((block.end - block.start) * 1e6, 1) for block in blocks] == [one["dur"] for one in lane]
