"""Silence and heat of stages become events, on made-up times."""

from __future__ import annotations

from fleetchat.fleet.chain import Stage
from fleetchat.fleet.event_log import EventKind, EventLog
from fleetchat.fleet.observer import Observer
from fleetchat.fleet.telemetry import StageState
from fleetchat.fleet.timeline import PassedBatch, Piece, WorkKind
from fleetchat.ids import Address
from fleetchat.wire.frames import StageTiming

DECODE = (Piece(1, 1, WorkKind.DECODE),)


def stages(*, port: int = 7000) -> list[Stage]:
    return [Stage(i, f"s{i}", Address("10.0.0.1", port + i), 0, 9, StageState.READY) for i in range(2)]


def passed(returned: float, *compute: float, pieces: tuple[Piece, ...] = DECODE) -> PassedBatch:
    timings = tuple(StageTiming(0, round(ms * 1000), 0, ((10, 2),)) for ms in compute)
    return PassedBatch(pieces, returned - 0.02, returned, timings)


def told(log: EventLog) -> list[tuple[EventKind, int | None, str]]:
    return [(event.kind, event.stage, event.text) for event in log.listed()]


def test_only_the_slow_stage_is_told() -> None:
    log, chain = EventLog(), stages()
    observer = Observer(log)
    observer.look(chain, 0.0)
    now = 0.0
    for second in range(120):
        for _ in range(10):
            now += 0.1
            observer.note(passed(now, 5.0, 5.0 if second < 60 else 10.0))
        observer.look(chain, now)
    assert told(log) == [
        (
            EventKind.THROTTLING,
            1,
            "stage 1 at 10.0.0.1:7001 took 2.0 times its own best over the last 40 s",
        )
    ]
    assert log.listed()[0].at - 60.0 < 60.0
    assert observer.heat(0) == (1.0, False)
    assert observer.heat(1) == (2.0, True)
    for _ in range(70):
        for _ in range(10):
            now += 0.1
            observer.note(passed(now, 5.0, 5.0))
        observer.look(chain, now)
    assert [event.kind for event in log.listed()] == [EventKind.THROTTLING, EventKind.COOLED]


def test_prefill_says_nothing_about_heat() -> None:
    observer, chain = Observer(EventLog()), stages()
    observer.look(chain, 0.0)
    for number in range(600):
        prefill = (Piece(1, 1 + number, WorkKind.PREFILL), *DECODE)
        observer.note(passed(number / 10, 1.0 + number, 1.0, pieces=prefill))
    observer.look(chain, 60.0)
    assert observer.heat(0) == (None, False)


def test_a_batch_that_had_the_chain_for_itself_sets_no_standard_for_others() -> None:
    """A batch that was sent before another came back shared the chain with it."""
    observer, chain = Observer(EventLog()), stages()
    observer.look(chain, 0.0)
    now = 0.0
    for interval, milliseconds in [(0.1, 5.0), (0.015, 9.0)]:  # each takes 20 ms from sending to return
        for _ in range(round(60 / interval)):
            now += interval
            observer.note(passed(now, milliseconds, milliseconds))
            observer.look(chain, now)
        assert observer.heat(0) == (1.0, False)


def test_another_address_is_another_machine() -> None:
    observer, chain = Observer(EventLog()), stages()
    observer.look(chain, 0.0)
    for number in range(600):
        observer.note(passed(number / 10, 5.0, 5.0))
    observer.look(chain, 60.0)
    assert observer.heat(0) == (1.0, False)
    observer.look(stages(port=8000), 60.0)
    assert observer.heat(0) == (None, False)
    assert observer.heat(7) == (None, False)


def test_silence_is_told_once_and_so_is_its_end() -> None:
    log, chain = EventLog(), stages()
    observer = Observer(log)
    observer.look(chain, 10.0)
    chain[1].silent_since = 8.0
    observer.look(chain, 10.5)
    observer.look(chain, 10.75)
    chain[1].silent_since = None
    observer.look(chain, 12.0)
    assert told(log) == [
        (EventKind.STALLED, 1, "nothing was heard of stage 1 at 10.0.0.1:7001 for 2.5 s"),
        (EventKind.HEARD, 1, "stage 1 at 10.0.0.1:7001 answers again after 4.0 s"),
    ]


def test_a_stage_that_is_lost_does_not_answer_again() -> None:
    log, chain = EventLog(), stages()
    observer = Observer(log)
    chain[0].silent_since = 1.0
    observer.look(chain, 3.0)
    chain[0].state = StageState.LOST
    observer.look(chain, 4.0)
    assert [event.kind for event in log.listed()] == [EventKind.STALLED]
