"""What is done about a lost stage, and when it ends: numbers only."""

from __future__ import annotations

import pytest

from fleetchat.fleet.deadlines import Deadlines
from fleetchat.fleet.recovery import Attempts, remedy_for
from fleetchat.fleet.trouble import Cause, Loss, Remedy, given_up_sentence, trouble_sentence

SHORT = Deadlines(pause=0.5, longest_pause=5.0, recovery=60.0, attempts=12, settled=30.0)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.LINK])
def test_an_embedded_stage_is_restarted(cause: Cause) -> None:
    assert remedy_for(cause, embedded=True, spares=1, repeated=False) is Remedy.RESTART


def test_a_broken_link_between_two_that_live_gets_a_new_link_first() -> None:
    assert remedy_for(Cause.LINK, embedded=True, spares=0, repeated=False) is Remedy.REDIAL
    assert remedy_for(Cause.LINK, embedded=True, spares=0, repeated=True) is Remedy.RESTART
    assert remedy_for(Cause.LINK, embedded=False, spares=1, repeated=True) is Remedy.SPARE


def test_a_configured_peer_is_replaced_by_a_spare_or_dialled_again() -> None:
    assert remedy_for(Cause.SILENT, embedded=False, spares=1, repeated=False) is Remedy.SPARE
    assert remedy_for(Cause.SILENT, embedded=False, spares=0, repeated=True) is Remedy.REDIAL


def test_a_peer_that_refuses_is_not_asked_again() -> None:
    assert remedy_for(Cause.REFUSED, embedded=False, spares=0, repeated=False) is Remedy.NONE
    assert remedy_for(Cause.REFUSED, embedded=False, spares=2, repeated=False) is Remedy.SPARE


def test_pauses_double_and_are_bounded() -> None:
    attempts = Attempts(SHORT)
    attempts.lost(100.0, lived=5.0, tokens=9)
    pauses = [attempts.next_pause(100.0) for _ in range(13)]
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, None]


def test_after_the_whole_time_nothing_more_is_tried() -> None:
    attempts = Attempts(SHORT)
    attempts.lost(100.0, lived=5.0, tokens=9)
    assert attempts.next_pause(100.0) == 0.0
    assert attempts.next_pause(159.0) == 0.5
    assert attempts.next_pause(159.5) is None


def test_a_stage_that_takes_long_to_load_gets_more_than_one_attempt() -> None:
    attempts = Attempts(SHORT.with_loading(100.0))
    attempts.lost(0.0, lived=0.0, tokens=1)
    assert attempts.next_pause(0.0) == 0.0
    assert attempts.next_pause(SHORT.recovery + 90.0) is not None
    assert Attempts(SHORT, count=1).next_pause(SHORT.recovery + 90.0) is None


def test_a_peer_that_comes_back_only_to_die_is_counted() -> None:
    attempts = Attempts(SHORT)
    for _ in range(12):
        attempts.lost(100.0, lived=0.1, tokens=0)
        assert attempts.next_pause(100.0) is not None
    attempts.lost(100.0, lived=0.1, tokens=0)
    assert attempts.next_pause(100.0) is None


@pytest.mark.parametrize(("lived", "tokens"), [(0.1, 1), (30.0, 0)])
def test_a_chain_that_was_of_use_begins_a_new_series(lived: float, tokens: int) -> None:
    attempts = Attempts(SHORT)
    for _ in range(100):
        attempts.lost(100.0, lived=lived, tokens=tokens)
        assert attempts.next_pause(100.0) == 0.0


def test_trouble_in_words() -> None:
    loss = Loss(1, "127.0.0.1:4711", Cause.SILENT, 0.0, 5.0)
    assert trouble_sentence(loss, Remedy.RESTART) == (
        "Stage 1 (127.0.0.1:4711) stopped answering. It is being restarted; your answers go on by themselves."
    )
    assert trouble_sentence(loss, Remedy.REDIAL, pause=4.0) == (
        "Stage 1 (127.0.0.1:4711) stopped answering. Trying again in 4 s; your answers are kept and go on "
        "when it is back."
    )
    for cause in Cause:
        for remedy in Remedy:
            sentence = trouble_sentence(Loss(0, "a:1", cause, 0.0, 0.0), remedy)
            assert sentence.startswith("Stage 0 (a:1) ")
            assert sentence.endswith(".")


def test_giving_up_in_words() -> None:
    assert given_up_sentence("stage 1 at a:1 left: stopped", 1, 0.2) == (
        "stage 1 at a:1 left: stopped; it did not come back (1 attempt in 0 s)"
    )
