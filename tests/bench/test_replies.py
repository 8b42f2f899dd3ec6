"""Both sides count tokens alike."""

from __future__ import annotations

import pytest

from fleetchat.bench.replies import ReplyTime, decode_rate, timed_reply


def test_a_reply_is_timed_from_its_first_token_to_its_last() -> None:
    assert timed_reply(1.0, [1.5, 2.0, 3.5], [7, 8, 9]) == ReplyTime(3, 500.0, 2.0)


def test_what_comes_after_the_first_loop_does_not_count() -> None:
    ids = [*range(20), *range(12), 99]
    times = [float(second) for second in range(len(ids))]
    assert timed_reply(0.0, times, ids) == ReplyTime(20, 0.0, 19.0)


def test_a_reply_without_a_token_is_none() -> None:
    assert timed_reply(0.0, [], []) is None


def test_the_rate_leaves_the_first_token_out_and_sums_over_sessions() -> None:
    replies = [ReplyTime(11, 80.0, 1.0), ReplyTime(31, 90.0, 3.0)]
    assert decode_rate(replies) == 10.0
    assert decode_rate(replies, concurrent=2) == 20.0


def test_nothing_but_first_tokens_is_no_rate() -> None:
    with pytest.raises(ValueError, match="second token"):
        decode_rate([ReplyTime(1, 80.0, 0.0)])
