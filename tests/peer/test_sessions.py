from __future__ import annotations

import pytest

from fleetchat.engine.interface import EngineTraits
from fleetchat.ids import Epoch, SessionId, SessionKey
from fleetchat.peer import sessions as sessions_module
from fleetchat.wire.frames import Cancel, Close, Compact, Fork, Result, ResultStatus
from tests.fakes.engine import FakeEngine, by_session
from tests.peer.builders import CHAIN, piece
from tests.peer.test_stage import Stage, stage, statuses

EPOCH = Epoch(1)


def cancel(served: Stage, session: int, keep: int) -> None:
    served.worker.in_band(Cancel(EPOCH, SessionId(session), keep))


def compact(served: Stage, session: int) -> None:
    served.worker.in_band(Compact(EPOCH, SessionId(session)))


def cells(served: Stage, session: int) -> tuple[int, int]:
    counted = served.engine.cells(SessionKey(CHAIN, SessionId(session)))
    return counted.live, counted.dead


def with_dead_cells(session: int = 1) -> Stage:
    served = stage(compaction_steps=3)
    served.result(piece(session, 0, [5, 6, 7, 8]))
    cancel(served, session, 1)
    assert cells(served, session) == (1, 3)
    return served


def test_a_cancel_truncates() -> None:
    served = stage()
    served.result(piece(1, 0, [5, 6, 7]))
    cancel(served, 1, 2)
    assert served.length(1) == 2
    assert served.result(piece(1, 2, [8])).results[0].token == by_session(1, 3)


@pytest.mark.parametrize("keep", [3, 4, 1000])
def test_a_cancel_never_grows(keep: int) -> None:
    served = stage()
    served.result(piece(1, 0, [5, 6, 7]))
    cancel(served, 1, keep)
    assert served.length(1) == 3


def test_a_cancel_of_an_unknown_session_is_nothing() -> None:
    served = stage()
    cancel(served, 9, 5)
    assert served.worker.statistics() == ()
    assert statuses(served.result(piece(9, 0, [5]))) == [ResultStatus.DRAWN]


def test_a_close_frees_the_cells() -> None:
    served = stage()
    served.result(piece(1, 0, [5, 6, 7]))
    served.worker.in_band(Close(EPOCH, SessionId(1)))
    assert served.engine.sessions() == []
    assert served.worker.statistics() == ()


def test_a_compaction_goes_step_by_step_and_then_shows() -> None:
    served = with_dead_cells()
    compact(served, 1)
    steps = []
    while served.worker.compacting:
        steps.append(cells(served, 1))
        served.worker.compaction_step()
    assert steps == [(1, 3)] * 3
    assert cells(served, 1) == (1, 0)
    assert [(item.live, item.dead) for item in served.worker.statistics()] == [(1, 0)]


def test_other_sessions_overtake_a_compaction() -> None:
    served = with_dead_cells()
    compact(served, 1)
    served.worker.compaction_step()
    assert statuses(served.result(piece(2, 0, [5]))) == [ResultStatus.DRAWN]
    assert served.worker.compacting
    assert cells(served, 1) == (1, 3)


def test_a_slice_of_the_same_session_finishes_it() -> None:
    served = with_dead_cells()
    compact(served, 1)
    result = served.result(piece(1, 1, [9]))
    assert result.timings[0].cells == ((2, 0),)
    assert not served.worker.compacting


def test_a_cancel_finishes_it_and_a_close_ends_it() -> None:
    served = with_dead_cells()
    compact(served, 1)
    cancel(served, 1, 1)
    assert (cells(served, 1), served.worker.compacting) == ((1, 0), False)
    served = with_dead_cells()
    compact(served, 1)
    served.worker.in_band(Close(EPOCH, SessionId(1)))
    assert not served.worker.compacting
    served.worker.compaction_step()


def test_sessions_are_compacted_in_turn_and_each_once() -> None:
    served = with_dead_cells(1)
    served.result(piece(2, 0, [5, 6, 7, 8]))
    cancel(served, 2, 1)
    for session in (1, 2, 1):
        compact(served, session)
    for _ in range(4):
        served.worker.compaction_step()
    assert [cells(served, 1), cells(served, 2)] == [(1, 3), (1, 3)]
    served.worker.compaction_step()
    assert [cells(served, 1), cells(served, 2)] == [(1, 0), (1, 3)]
    served.worker.compaction_step()
    assert not served.worker.compacting


def test_compaction_of_an_unknown_session_is_nothing() -> None:
    served = stage()
    compact(served, 1)
    assert not served.worker.compacting


class Brittle(FakeEngine):
    """Raises where an order makes it work."""

    def compact(self, key: SessionKey) -> bool:
        raise RuntimeError("cannot copy")


def test_a_session_whose_compaction_failed_fails_until_it_is_closed() -> None:
    served = stage(engine=Brittle())
    served.result(piece(1, 0, [5, 6, 7, 8]))
    compact(served, 1)
    served.worker.compaction_step()
    assert not served.worker.compacting
    result = served.result(piece(1, 4, [9]), piece(2, 0, [9]))
    assert statuses(result) == [ResultStatus.FAILED, ResultStatus.DRAWN]
    assert result.results[0].fault_text == "RuntimeError: cannot copy"
    served.worker.in_band(Close(EPOCH, SessionId(1)))
    assert statuses(served.result(piece(1, 0, [9]))) == [ResultStatus.DRAWN]


class Forking(FakeEngine):
    """Forks by copying the ledger."""

    @property
    def traits(self) -> EngineTraits:
        return EngineTraits("paged", 1, True, 1, 1000)

    def fork(self, new: SessionKey, source: SessionKey, length: int) -> None:
        ledger = self._ledgers[new] = type(self._ledgers[source])()
        ledger.append(length)


def fork(served: Stage, new: int, source: int, length: int) -> None:
    served.worker.in_band(Fork(EPOCH, SessionId(new), SessionId(source), length))


def test_a_fork_shares_the_prefix_and_the_history() -> None:
    served = stage(engine=Forking(oracle=lambda session, position: 100))
    served.result(piece(1, 0, [100, 6, 7]))
    fork(served, 2, 1, 2)
    assert served.length(2) == 2
    draw = piece(2, 2, [8]).draw
    assert draw is not None
    greedy = served.result(piece(2, 2, [8]))
    assert greedy.results[0].token == 100
    penalised = type(draw)(0.0, 1.0, 0, 2.0, 1, 0)
    result = served.result(piece(2, 3, [8], draw=penalised))
    assert result.results[0].token == 101, "100 is in the ids that the fork took over"


@pytest.mark.parametrize(
    ("new", "length", "code", "text"),
    [
        (3, 1, "desync", "session 3 is in use, it cannot become a fork"),
        (2, 4, "gap", "a fork of 4 positions out of 3"),
    ],
)
def test_a_fork_that_cannot_be_fails_the_next_slice(new: int, length: int, code: str, text: str) -> None:
    served = stage(engine=Forking())
    served.result(piece(1, 0, [5, 6, 7]), piece(3, 0, [5]))
    fork(served, new, 1, length)
    failed = served.result(piece(new, served.length(new), [8])).results[0]
    assert (failed.status, failed.fault_code, failed.fault_text) == (ResultStatus.FAILED, code, text)


def test_an_engine_that_does_not_fork_says_so() -> None:
    served = stage()
    served.result(piece(1, 0, [5, 6, 7]))
    fork(served, 2, 1, 2)
    assert served.result(piece(2, 2, [8])).results[0].fault_code == "unsupported"


def test_the_number_of_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "SESSION_LIMIT", 2)
    served = stage()
    served.result(piece(1, 0, [5]), piece(2, 0, [5]))
    result = served.result(piece(3, 0, [5]), piece(2, 1, [5]))
    assert statuses(result) == [ResultStatus.FAILED, ResultStatus.DRAWN]
    assert result.results[0].fault_code == "overflow"


def test_free_gives_everything_back() -> None:
    served = stage(cells=4)
    served.result(piece(1, 0, [5, 6, 7, 8]))
    compact(served, 1)
    served.worker.free()
    assert served.engine.sessions() == []
    assert served.worker.statistics() == ()
    assert not served.worker.compacting
    outgoing = served.forward(piece(1, 0, [5, 6, 7, 8]))
    assert isinstance(outgoing, Result)
    assert statuses(outgoing) == [ResultStatus.DRAWN]
