"""What the system tells of a process, and the nominal size of a cell."""

from __future__ import annotations

from types import SimpleNamespace

from fleetchat.bench.memory import anonymous_of, cell_bytes, shards_of

ROLLUP = """\
559d8a1f2000-7ffd0b9fe000 ---p 00000000 00:00 0                          [rollup]
Rss:              104192 kB
Anonymous:         83284 kB
LazyFree:              0 kB
"""
MAPS = """\
559d8a1f2000-559d8a1f3000 r--p 00000000 fd:00 1837  /usr/bin/python3
7f01a0000000-7f01a4000000 r--p 00000000 fd:00 9911  /some store/builds/1a/stage-00.bin
7f01a4000000-7f01a5000000 r--s 00000000 fd:00 9911  /some store/builds/1a/stage-00.bin
7f01b0000000-7f01b1000000 rw-p 00000000 00:00 0
"""


def test_anonymous_memory_is_read_in_bytes() -> None:
    assert anonymous_of(ROLLUP) == 83284 * 1024
    assert anonymous_of("") == 0


def test_weight_files_that_are_mapped_are_named_once() -> None:
    assert shards_of(MAPS) == ["stage-00.bin"]


def test_a_cell_has_its_values_and_in_u8_its_scales() -> None:
    entry = SimpleNamespace(kv_values_per_cell=256, kv_shapes=((2, 64), (2, 64)))
    subject = SimpleNamespace(manifest=SimpleNamespace(stages=[entry]))
    assert cell_bytes(subject, 0, "exact") == 1024  # type: ignore[arg-type]
    assert cell_bytes(subject, 0, "fast") == 256 + 4 * 8  # type: ignore[arg-type]
