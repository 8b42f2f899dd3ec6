from __future__ import annotations

import pytest

from fleetchat.errors import RemoteProtocolError
from fleetchat.ids import ChainId, Epoch, SessionId
from fleetchat.peer.queue import (
    QueuedBatch,
    QueuedItem,
    ServedKey,
    ServingQueue,
    batch_bytes,
    queue_byte_limit,
)
from fleetchat.wire.frames import Cancel, Close, WireDtype
from tests.peer.builders import batch, piece, queued

A, B = (ServedKey(ChainId(letter * 32), Epoch(1)) for letter in "ab")


def numbered(sequence: int, session: int = 1) -> QueuedBatch:
    return queued(batch(piece(session, 0, [1]), sequence=sequence))


def cancel(session: int) -> Cancel:
    return Cancel(Epoch(1), SessionId(session), 0)


def opened(*chains: ServedKey, **settings: int) -> ServingQueue:
    queue = ServingQueue(**settings)
    for chain in chains:
        queue.open(chain)
    return queue


def drain(queue: ServingQueue) -> list[tuple[ServedKey, int]]:
    order: list[tuple[ServedKey, int]] = []
    while (taken := queue.pop()) is not None:
        chain, item = taken
        assert isinstance(item, QueuedBatch)
        order.append((chain, item.frame.sequence))
    return order


def test_chains_are_served_in_turn() -> None:
    queue = opened(A, B)
    for sequence in range(3):
        queue.push_batch(A, numbered(sequence))
    queue.push_batch(B, numbered(10))
    assert drain(queue) == [(A, 0), (B, 10), (A, 1), (A, 2)]


def test_a_chain_that_comes_later_does_not_wait_for_the_other_ones_queue() -> None:
    queue = opened(A, B)
    for sequence in range(3):
        queue.push_batch(A, numbered(sequence))
    assert queue.pop() is not None
    queue.push_batch(B, numbered(10))
    assert drain(queue) == [(A, 1), (B, 10), (A, 2)]


def test_one_batch_beyond_the_window_is_a_protocol_error() -> None:
    queue = opened(A, B, window=2)
    queue.push_batch(A, numbered(0))
    queue.push_batch(A, numbered(1))
    queue.push_batch(B, numbered(0))
    with pytest.raises(RemoteProtocolError, match="more than 2 batches in flight"):
        queue.push_batch(A, numbered(2))


def test_a_batch_keeps_its_place_until_it_is_sent_on() -> None:
    queue = opened(A, window=1)
    first = numbered(0)
    queue.push_batch(A, first)
    assert queue.pop() == (A, first)
    with pytest.raises(RemoteProtocolError):
        queue.push_batch(A, numbered(1))
    queue.release(A, first)
    queue.push_batch(A, numbered(1))
    assert drain(queue) == [(A, 1)]


def test_orders_take_no_place_in_the_window_but_are_bounded() -> None:
    queue = opened(A, window=1, in_band_limit=2)
    queue.push_batch(A, numbered(0))
    queue.push_in_band(A, cancel(1))
    queue.push_in_band(A, Close(Epoch(1), SessionId(1)))
    with pytest.raises(RemoteProtocolError, match="more than 2 session orders"):
        queue.push_in_band(A, cancel(1))
    queue.release(A, cancel(1))
    queue.push_in_band(A, cancel(1))


def test_a_cancel_marks_what_lies_before_it_and_nothing_behind_it() -> None:
    queue = opened(A, B)
    before, other_chain, after = numbered(0), numbered(0), numbered(1)
    queue.push_batch(A, before)
    queue.push_batch(B, other_chain)
    queue.push_in_band(A, cancel(1))
    queue.push_batch(A, after)
    assert (before.skipped, other_chain.skipped, after.skipped) == ({1}, set(), set())


def test_a_cancel_does_not_touch_a_batch_that_is_being_carried_out() -> None:
    queue = opened(A)
    running = numbered(0)
    queue.push_batch(A, running)
    queue.pop()
    queue.push_in_band(A, cancel(1))
    assert running.skipped == set()


def test_orders_and_batches_of_a_chain_keep_their_order() -> None:
    queue = opened(A)
    items: list[QueuedItem] = [numbered(0), cancel(1), numbered(1)]
    for item in items:
        if isinstance(item, QueuedBatch):
            queue.push_batch(A, item)
        else:
            queue.push_in_band(A, item)
    assert [queue.pop(), queue.pop(), queue.pop(), queue.pop()] == [*((A, item) for item in items), None]


def test_a_dropped_chain_leaves_nothing_and_late_frames_are_ignored() -> None:
    queue = opened(A, B)
    queue.push_batch(A, numbered(0))
    queue.push_batch(B, numbered(5))
    queue.drop(A)
    queue.push_batch(A, numbered(1))
    queue.push_in_band(A, cancel(1))
    queue.release(A, cancel(1))
    assert drain(queue) == [(B, 5)]
    assert (queue.held(A), queue.waiting_bytes(A)) == (0, 0)


def test_waiting_bytes_are_those_of_the_batches_that_wait() -> None:
    queue = opened(A)
    first = queued(batch(piece(1, 0, [1, 2, 3])))
    queue.push_batch(A, first)
    queue.push_batch(A, numbered(1))
    assert (batch_bytes(first.frame), queue.waiting_bytes(A)) == (12, 16)
    queue.pop()
    assert queue.waiting_bytes(A) == 4


def test_a_batch_is_held_until_it_was_sent_on() -> None:
    """A long prefill leaves nothing that waits: the stage must not be thought idle meanwhile."""
    queue = opened(A)
    batches = [numbered(0), numbered(1)]
    for one in batches:
        queue.push_batch(A, one)
    queue.push_in_band(A, cancel(1))
    assert queue.held(A) == 3
    queue.pop()
    assert queue.held(A) == 3
    queue.release(A, batches[0])
    queue.release(A, cancel(1))
    assert queue.held(A) == 1
    assert queue.held(B) == 0


def test_the_byte_limit_is_two_of_the_largest_batches() -> None:
    assert queue_byte_limit(max_rows=10, hidden=8, wire_dtype=WireDtype.F16) == 2 * 10 * (4 + 16)
    assert queue_byte_limit(max_rows=10, hidden=8, wire_dtype=WireDtype.F32) == 2 * 10 * (4 + 32)
