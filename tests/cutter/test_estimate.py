from __future__ import annotations

import pytest

from fleetchat.cutter.estimate import check_room, needs
from fleetchat.errors import SourceError

GB = 10**9


def test_a_checkpoint_takes_its_fp16_export_beside_the_shards() -> None:
    needed = needs("checkpoint", 16 * GB, "int4", fetched=16 * GB)
    assert needed.disk > 16 * GB + 16 * GB + 2 * 16 * 0.3 * GB
    assert needed.memory > 32 * GB
    assert needed.line.startswith("16,000 MB to fetch, ")


def test_more_bits_take_more_disk() -> None:
    sizes = [needs("checkpoint", GB, weights, fetched=0).disk for weights in ("int4", "int8", "fp16")]
    assert sizes == sorted(sizes)
    assert "fetch" not in needs("ir", GB, "int4", fetched=0).line


def test_too_little_room_is_refused_in_numbers() -> None:
    needed = needs("gguf", GB, "int4", fetched=0)
    check_room(needed, disk=100 * GB, memory=100 * GB, place="x")
    check_room(needed, disk=100 * GB, memory=0, place="x")
    with pytest.raises(SourceError, match=r"takes 3,500 MB of disk, and /store has 1,000 MB free"):
        check_room(needed, disk=GB, memory=100 * GB, place="/store")
    with pytest.raises(SourceError, match=r"takes 3,200 MB of memory, and 1,000 MB are free"):
        check_room(needed, disk=100 * GB, memory=GB, place="/store")
