from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.peer.loading import loading_words
from tests.peer.builders import manifest


@pytest.mark.parametrize(
    ("size", "words"),
    [(999_999_999, "loading the shard"), (2_452_038_048, "loading the shard of 2.5 GB")],
)
def test_a_large_shard_is_told_with_its_size(size: int, words: str) -> None:
    (entry,) = manifest().stages
    assert loading_words(replace(entry, bin=replace(entry.bin, size=size))) == words
