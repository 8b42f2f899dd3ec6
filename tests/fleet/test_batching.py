"""The batch former, on numbers: what it must always do, and its rules one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fleetchat.fleet.batching import (
    FIRST_CHUNK,
    LONGEST,
    PIPELINED_CHUNK,
    SLOW_CHUNK,
    STRETCH,
    ChainLimits,
    Load,
    Pace,
    ReadyFeed,
    Share,
    batch_size,
    batches_wanted,
    chunk_rows,
    chunk_seconds,
    chunks_wanted,
    next_batch,
)

ONE_BY_ONE = ChainLimits(stages=2, window=32, sessions_per_batch=1, max_rows=2048, max_slices=64)
TOGETHER = replace(ONE_BY_ONE, sessions_per_batch=64)
PACE = Pace(traversal=0.017, slowest_stage=0.009, chunk_row=0.001)


def decode(session: int, since: float = 0.0, rows: int = 1) -> ReadyFeed:
    return ReadyFeed(session, rows, since)


def prefill(session: int, since: float = 0.0, rows: int = 500, *, focused: bool = False) -> ReadyFeed:
    return ReadyFeed(session, rows, since, prefill=True, focused=focused)


def sent(ready: list[ReadyFeed], limits: ChainLimits, load: Load, pace: Pace = PACE) -> list[int]:
    return [share.session for share in next_batch(ready, limits, load, pace)]


limits_of_chains = some.builds(
    ChainLimits,
    stages=some.integers(1, 6),
    window=some.integers(1, 32),
    sessions_per_batch=some.sampled_from([1, 2, 8, 256]),
    max_rows=some.sampled_from([64, 2048]),
    max_slices=some.sampled_from([1, 64]),
)
paces = some.one_of(
    some.just(Pace()),
    some.builds(Pace, some.floats(0.001, 1), some.floats(0.0005, 0.1), some.floats(0, 0.01)),
)


@some.composite
def situations(draw: some.DrawFn) -> tuple[list[ReadyFeed], Load]:
    """Ready feeds, and a load that fits them: those who stream are ready or in flight."""
    times = some.floats(0, 100)
    decodes = [
        decode(number, draw(times), rows)
        for number, rows in enumerate(draw(some.lists(some.integers(1, 16))))
    ]
    prefills = [
        prefill(100 + number, draw(times), rows)
        for number, rows in enumerate(draw(some.lists(some.integers(17, 3000), max_size=4)))
    ]
    batches = tuple(draw(some.lists(some.integers(0, 8), max_size=8)))
    load = Load(
        batches=batches,
        streaming=len(decodes) + sum(batches),
        prefilling=len(prefills) + draw(some.integers(0, 2)),
        chunks=draw(some.integers(0, len(batches))),
        last_chunk=draw(times),
    )
    ready = draw(some.permutations([*decodes, *prefills]))
    return ready, load


@settings(max_examples=200, deadline=None)
@given(situations(), limits_of_chains, paces)
def test_whatever_the_situation(
    situation: tuple[list[ReadyFeed], Load], limits: ChainLimits, pace: Pace
) -> None:
    ready, load = situation
    batch = next_batch(ready, limits, load, pace)
    room = len(load.batches) < batches_wanted(limits, load, pace)
    chunk_may_go = load.chunks < chunks_wanted(limits, load, pace)
    may_go = [feed for feed in ready if chunk_may_go or not feed.prefill]
    assert bool(batch) == bool(may_go and room), "work conserving: a place in the chain is never left empty"
    feeds = {feed.session: feed for feed in ready}
    assert len({share.session for share in batch}) == len(batch)
    assert len(batch) <= min(limits.sessions_per_batch, limits.max_slices)
    assert sum(share.rows for share in batch) <= limits.max_rows
    assert sum(feeds[share.session].prefill for share in batch) <= 1
    for share in batch:
        feed = feeds[share.session]
        assert 1 <= share.rows <= feed.rows
        assert feed.prefill or share.rows == feed.rows
    chosen = [feeds[share.session] for share in batch if not feeds[share.session].prefill]
    left = [feed for feed in ready if not feed.prefill and feed not in chosen]
    assert [feed.since for feed in chosen] == sorted(feed.since for feed in chosen)
    assert not chosen or all(feed.since >= chosen[-1].since for feed in left), "in order of readiness"


@given(limits_of_chains, paces, some.integers(0, 40), some.integers(0, 3))
def test_the_window_is_kept(limits: ChainLimits, pace: Pace, streaming: int, prefilling: int) -> None:
    load = Load(streaming=streaming, prefilling=prefilling)
    assert 1 <= batches_wanted(limits, load, pace) <= limits.window


def test_batches_in_flight_follow_the_traversal() -> None:
    many = Load(streaming=40)
    assert batches_wanted(ONE_BY_ONE, many, Pace()) == 2  # nothing measured: one a stage
    assert batches_wanted(ONE_BY_ONE, many, Pace(0.013, 0.009)) == 2
    assert batches_wanted(ONE_BY_ONE, many, Pace(0.017, 0.009)) == 3  # with a quarter of a batch to spare
    assert batches_wanted(TOGETHER, many, Pace(0.017, 0.009)) == 2  # batches are shared: to the nearest
    assert batches_wanted(TOGETHER, many, Pace(0.117, 0.009)) == 13
    assert batches_wanted(TOGETHER, Load(streaming=5), Pace(0.117, 0.009)) == 5
    assert batches_wanted(TOGETHER, many, Pace(9.0, 0.009)) == 32


def test_chunks_of_one_prefill_fill_a_long_way_beside_a_stream() -> None:
    far = Pace(0.117, 0.009, 0.001)
    assert batches_wanted(ONE_BY_ONE, Load(streaming=1), far) == 1
    assert batches_wanted(ONE_BY_ONE, Load(streaming=1, prefilling=1), far) == 14
    assert batches_wanted(ONE_BY_ONE, Load(prefilling=2), far) == 2  # whole: one piece each


def test_sizes_differ_by_at_most_one() -> None:
    pace = Pace(0.027, 0.009)
    sizes: list[int] = []
    for _ in range(3):
        sizes.append(batch_size(TOGETHER, Load(batches=tuple(sizes), streaming=7), pace))
    assert sizes == [3, 2, 2]


def test_uneven_batches_become_even() -> None:
    pace, sizes = Pace(0.027, 0.009), [5, 1, 1]
    for _ in range(9):
        sizes.pop(0)
        idle = 7 - sum(sizes)
        size = batch_size(TOGETHER, Load(batches=tuple(sizes), streaming=7), pace)
        sizes.append(min(size, idle))
    assert sorted(sizes) == [2, 2, 3]


def test_a_prefill_goes_whole_when_nobody_streams() -> None:
    alone = Load(prefilling=2)
    assert chunk_rows(prefill(1, rows=1900), ONE_BY_ONE, alone, PACE) == 1900
    assert chunk_rows(prefill(1, rows=5000), ONE_BY_ONE, alone, PACE) == 2048


@pytest.mark.parametrize("stages", [1, 2])
def test_a_prefill_that_takes_minutes_is_cut_on_every_engine(stages: int) -> None:
    limits, slow = replace(ONE_BY_ONE, stages=stages), Pace(chunk_row=SLOW_CHUNK / PIPELINED_CHUNK)
    alone = Load(prefilling=1)
    assert chunk_rows(prefill(1, rows=1900), limits, alone, slow) == PIPELINED_CHUNK
    assert chunk_rows(prefill(1, rows=300), limits, alone, slow) == 100
    assert batches_wanted(limits, alone, slow) == stages + 1
    just_not = Pace(chunk_row=0.99 * slow.chunk_row)
    assert chunk_rows(prefill(1, rows=1900), limits, alone, just_not) == 1900


@given(paces, some.integers(1, 40), limits_of_chains, some.integers(17, 3000))
def test_chunks_let_the_gaps_grow_to_their_share(
    pace: Pace, streaming: int, limits: ChainLimits, rows: int
) -> None:
    load = Load(streaming=streaming, prefilling=1)
    got = chunk_rows(prefill(1, rows=rows), limits, load, pace)
    if pace.chunk_row <= 0 or pace.slowest_stage <= 0:
        assert got == FIRST_CHUNK
        return
    seconds = chunk_seconds(limits, load, pace)
    assert got == 1 or (got - 0.5) * pace.chunk_row <= seconds * 1.000001
    batches = min(streaming, batches_wanted(limits, load, pace)) if limits.places > 1 else streaming
    gap = max(pace.traversal, batches * pace.slowest_stage)
    in_a_round = batches * pace.slowest_stage + chunks_wanted(limits, load, pace) * seconds
    assert in_a_round <= STRETCH * gap * 1.000001


def test_streams_leave_chunks_what_is_empty_of_the_chain() -> None:
    far = Pace(0.117, 0.009, 0.001)
    assert chunks_wanted(ONE_BY_ONE, Load(streaming=4, prefilling=1), far) == 14 - 4
    assert chunks_wanted(ONE_BY_ONE, Load(streaming=40, prefilling=1), far) == 1
    assert chunks_wanted(ONE_BY_ONE, Load(streaming=4, prefilling=3), PACE) == 1
    assert chunks_wanted(TOGETHER, Load(streaming=4, prefilling=3), PACE) == 2  # on top of every batch
    full = Load(batches=(1, 1, 0), streaming=2, prefilling=1, chunks=1)
    assert not sent([prefill(9)], ONE_BY_ONE, full)
    assert sent([prefill(9), decode(1)], ONE_BY_ONE, replace(full, batches=(1, 0))) == [1]


def test_one_chunk_on_top_of_the_decodes_where_slices_share_a_pass() -> None:
    ready = [decode(1), decode(2), prefill(3), prefill(4), decode(5), decode(6)]
    load = Load(streaming=4, prefilling=2)
    assert sent(ready, TOGETHER, load) == [3, 1, 2]  # two batches: two of the four streams in each


def test_the_focused_prefill_goes_first_and_the_rest_in_turn() -> None:
    load = Load(streaming=1, prefilling=3)
    ready = [prefill(1, since=5), prefill(2, since=3), prefill(3, since=9, focused=True)]
    assert sent(ready, ONE_BY_ONE, load) == [3]
    assert sent(ready[:2], ONE_BY_ONE, load) == [2]


def test_chunks_take_turns_with_decodes() -> None:
    load = Load(streaming=2, prefilling=2, last_chunk=4.0)
    ready = [decode(1, since=5), decode(2, since=6), prefill(3, since=3), prefill(4, since=4)]
    assert sent(ready, ONE_BY_ONE, load) == [3]  # no chunk since before the oldest decode got ready
    assert sent(ready, ONE_BY_ONE, replace(load, last_chunk=5.5)) == [1]
    assert sent(ready, ONE_BY_ONE, replace(load, batches=(0,), chunks=1)) == [1]
    assert sent(ready[2:], ONE_BY_ONE, replace(load, batches=(1,), last_chunk=9.0)) == [3]


def test_rows_that_do_not_fit_wait() -> None:
    limits = replace(TOGETHER, max_rows=20)
    ready = [decode(1, 1.0, 9), decode(2, 2.0, 9), decode(3, 3.0, 9)]
    assert next_batch(ready, limits, Load(streaming=3), Pace(1.0, 1.0)) == (Share(1, 9), Share(2, 9))


@given(paces, limits_of_chains, some.integers(1, 40))
def test_a_stream_that_meets_a_chunk_on_every_stage_waits_for_it_no_longer_than_its_share(
    pace: Pace, limits: ChainLimits, streaming: int
) -> None:
    load = Load(streaming=streaming, prefilling=1)
    seconds = chunk_seconds(limits, load, pace)
    batches = min(streaming, batches_wanted(limits, load, pace)) if limits.places > 1 else streaming
    if batches < limits.stages:
        assert pace.traversal + limits.stages * seconds <= LONGEST * pace.traversal * 1.000001


def test_a_single_stream_is_spared_and_several_are_as_before() -> None:
    near = Pace(0.022, 0.010, 0.001)
    assert chunk_seconds(ONE_BY_ONE, Load(streaming=1, prefilling=1), near) == pytest.approx(1.4 * 0.011)
    assert chunk_seconds(ONE_BY_ONE, Load(streaming=3, prefilling=1), near) == pytest.approx(1.2 * 0.030)
