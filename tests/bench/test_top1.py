"""Teacher forcing and what is counted, on models that are tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetchat.bench.forcing import forced_tops, greedy_reply
from fleetchat.bench.pairs import QUICK
from fleetchat.bench.setting import Setting
from fleetchat.bench.top1 import Differences, ForcedText, compare, describe, top1_row


class Counting:
    """Behind id i it expects i + 1, but for the ids of `wrong`, behind which it expects 0."""

    def __init__(self, wrong: Sequence[int] = ()) -> None:
        self.wrong = set(wrong)
        self.calls: list[int] = []

    def begin(self) -> None:
        self.calls = []

    def tops(self, token_ids: Sequence[int]) -> NDArray[np.int64]:
        self.calls.append(len(token_ids))
        return np.array([0 if one in self.wrong else one + 1 for one in token_ids])


def test_the_prompt_goes_at_once_and_the_rest_in_steps() -> None:
    model = Counting()
    assert forced_tops(model, range(10), prefill=4, rows=3) == list(range(1, 11))
    assert model.calls == [4, 3, 3]


def test_a_greedy_reply_ends_before_its_stop_id() -> None:
    ids, tops = greedy_reply(Counting(), [5, 6], most=100, stop_ids=frozenset({9}))
    assert ids == [5, 6, 7, 8]
    assert tops == [6, 7, 8, 9]


def test_a_greedy_reply_has_a_greatest_length() -> None:
    ids, tops = greedy_reply(Counting(), [5], most=2, stop_ids=frozenset())
    assert (ids, tops) == ([5, 6, 7], [6, 7, 8])


def test_differences_are_counted_position_by_position(tmp_path: Path) -> None:
    setting = Setting(tmp_path, QUICK, (), lambda text: None)
    texts = [ForcedText(list(range(10)), 2, list(range(1, 11))), ForcedText([20, 21], 1, [21, 22])]
    found = compare(setting, texts, Counting([3, 4, 5]), Counting([5, 21]), 1)
    assert found == Differences(positions=12, chain=3, whole=2, chain_only=2, whole_only=1)


def test_the_row_has_two_standard_errors_as_its_range() -> None:
    found = Differences(positions=10_000, chain=120, whole=100, chain_only=60, whole_only=40)
    assert found.two_standard_errors == pytest.approx(2 * (100 - 0.04) ** 0.5 / 10_000)
    row = top1_row(found)
    assert (row.value, row.baseline, row.pairs) == (0.012, 0.01, 10_000)
    assert row.ratio == pytest.approx(1.2)
    assert row.ratio_min == pytest.approx(1.0, abs=0.001)
    assert row.ratio_max == pytest.approx(1.4, abs=0.001)


def test_without_any_difference_there_is_no_ratio() -> None:
    row = top1_row(Differences(100, 0, 0, 0, 0))
    assert (row.value, row.baseline, row.ratio) == (0.0, 0.0, None)


def test_the_words_say_how_it_was_read() -> None:
    text = describe(Differences(1234, 12, 10, 6, 4), 2, 8, replies=False)
    assert "1,234 positions of plain English and prompts" in text
    assert "8 rows at a time on both sides" in text
