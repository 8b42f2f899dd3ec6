"""Which regions of a process go on huge pages."""

from __future__ import annotations

import numpy as np

from fleetchat.engine.huge_pages import HUGE_PAGE, use_huge_pages, used_regions

MIB = 1 << 20


def region(first: int, size: int, anonymous: int, *, rights: str = "rw-p", inode: int = 0) -> str:
    name = "/lib/some library.so" if inode else "[heap]"
    return (
        f"{first:x}-{first + size:x} {rights} 00000000 00:00 {inode}   {name}\n"
        f"Size:           {size >> 10} kB\n"
        f"Rss:            {anonymous >> 10} kB\n"
        f"Anonymous:      {anonymous >> 10} kB\n"
        f"AnonHugePages:         0 kB\n"
        f"VmFlags: rd wr mr mw me ac\n"
    )


def test_a_used_region_is_cut_to_whole_huge_pages() -> None:
    smaps = region(0x7F0000000000 + MIB, 8 * MIB, 8 * MIB)
    assert used_regions(smaps) == [(0x7F0000000000 + 2 * MIB, 0x7F0000000000 + 8 * MIB)]


def test_what_is_not_mostly_used_or_not_ours_alone_is_left_as_it_is() -> None:
    smaps = (
        region(0x100000000, 8 * MIB, 2 * MIB)  # the stack of a thread
        + region(0x200000000, 8 * MIB, 8 * MIB, rights="r--p")
        + region(0x300000000, 8 * MIB, 8 * MIB, rights="rw-s")
        + region(0x400000000, 8 * MIB, 8 * MIB, inode=17)
        + region(0x500000000, MIB, MIB)
        + region(0x600000000, 8 * MIB, 7 * MIB)
    )
    assert used_regions(smaps) == [(0x600000000, 0x600000000 + 8 * MIB)]


def test_text_that_says_nothing_has_no_regions() -> None:
    assert used_regions("") == []
    assert used_regions("100-200 rw-p 00000000 00:00 0\n") == []


def test_asking_the_kernel_changes_no_byte() -> None:
    block = np.arange(4 * HUGE_PAGE, dtype=np.uint32)
    use_huge_pages()
    assert np.array_equal(block, np.arange(4 * HUGE_PAGE, dtype=np.uint32))
