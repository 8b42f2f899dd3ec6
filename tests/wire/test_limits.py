"""Both ends of a data link compute the same limits."""

from __future__ import annotations

from dataclasses import replace

from fleetchat.wire.frames import MAX_BODY, WireDtype
from fleetchat.wire.limits import downstream_limits, upstream_limits
from tests.wire.samples import VOCABULARY, WIDTH, opened


def test_what_leaves_a_stage_is_what_the_next_one_accepts() -> None:
    assert downstream_limits(opened(0)) == upstream_limits(opened(1))
    assert downstream_limits(opened(1)) == upstream_limits(opened(2))


def test_no_hidden_rows_go_into_the_first_stage_or_out_of_the_last() -> None:
    assert upstream_limits(opened(0)).hidden == 0
    assert downstream_limits(opened(2)).hidden == 0
    middle = upstream_limits(opened(1))
    assert (middle.hidden, middle.wire_dtype, middle.vocabulary) == (WIDTH, WireDtype.F16, VOCABULARY)
    assert (middle.max_rows, middle.max_slices) == (16, 4)


def test_a_body_is_never_larger_than_the_cap() -> None:
    large = replace(opened(1), hidden=32_768, max_rows=2_048, max_slices=1_024, stages=256)
    assert upstream_limits(large).max_body <= MAX_BODY
    assert upstream_limits(large).max_body > 2_048 * 32_768 * 2
