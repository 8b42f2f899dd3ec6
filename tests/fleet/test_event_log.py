"""The log of events: order, limit, and what a fleet writes into it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from fleetchat.errors import FleetError
from fleetchat.fleet.event_log import KEPT_EVENTS, EventKind, EventLog, FleetEvent
from fleetchat.fleet.telemetry import FleetSnapshot, StageState
from fleetchat.fleet.trouble import Cause, Loss, Recovery
from tests.fakes.chain import Letters, fake_fleet, request
from tests.fakes.drafters import WrongDrafter
from tests.fakes.engine import FAKE_VOCABULARY, FakeEngine, by_position
from tests.fakes.mortal import HASTY, mortal_fleet
from tests.peer.coordinator import wait_for


def ignore(text: str) -> None:
    """Nobody reads it."""


def test_events_are_numbered_and_listed_in_order() -> None:
    log = EventLog()
    assert log.listed() == ()
    log.note(1.5, EventKind.LOST, "gone", stage=1)
    first = log.listed()
    assert first == (FleetEvent(1, 1.5, EventKind.LOST, "gone", 1, None),)
    assert log.listed() is first
    log.note(2.5, EventKind.COMPACTION, "9 dead cells", session=4)
    assert log.listed() == (*first, FleetEvent(2, 2.5, EventKind.COMPACTION, "9 dead cells", None, 4))


def test_the_oldest_events_are_forgotten() -> None:
    log = EventLog()
    for number in range(KEPT_EVENTS + 3):
        log.note(float(number), EventKind.EVICTION, "")
    listed = log.listed()
    assert (len(listed), listed[0].number, listed[-1].number) == (KEPT_EVENTS, 4, KEPT_EVENTS + 3)


@pytest.mark.trio
async def test_an_idle_chat_that_makes_room_is_an_event() -> None:
    async with fake_fleet(cells=320, context=64) as fake:
        sessions = [fake.fleet.new_session() for _ in range(fake.fleet.places + 1)]
        for session in sessions:
            await fake.fleet.generate(session, request([1, 2, 3], max_tokens=4), Letters(), on_text=ignore)
        events = fake.fleet.snapshot().events
        assert [(event.kind, event.session, event.text) for event in events] == [
            (EventKind.EVICTION, 1, "6 cells of a chat that waits were given to another")
        ]
        assert fake.fleet.snapshot().evictions == 1


@pytest.mark.trio
async def test_a_reply_for_which_there_is_no_room_is_an_event() -> None:
    async with fake_fleet(cells=320, context=64) as fake, trio.open_nursery() as nursery:
        fleet = fake.fleet
        busy = [fleet.new_session() for _ in range(fleet.places)]
        for session in busy:
            nursery.start_soon(_generate_until_stopped, fleet, session)
        await wait_for(lambda: all(session.state is not None for session in busy))
        late = fleet.new_session()
        with pytest.raises(FleetError, match="no room"):
            await fleet.generate(late, request([1, 2, 3], max_tokens=4), Letters(), on_text=ignore)
        for session in busy:
            session.stop()
        (event,) = fleet.snapshot().events
        assert (event.kind, event.session) == (EventKind.REFUSED, late.number)
        assert "no room for another conversation" in event.text


async def _generate_until_stopped(fleet, session) -> None:  # type: ignore[no-untyped-def]
    await fleet.generate(session, request([1], max_tokens=1000), Letters(), on_text=ignore)


@pytest.mark.trio
async def test_a_compaction_is_an_event() -> None:
    drafter = WrongDrafter(by_position, FAKE_VOCABULARY)
    async with fake_fleet(context=128, drafter=drafter, depth=8) as fake:
        session = fake.fleet.new_session()
        await fake.fleet.generate(session, request([1, 2, 3], max_tokens=60), Letters(), on_text=ignore)
        snapshot = fake.fleet.snapshot()
        compactions = [event for event in snapshot.events if event.kind is EventKind.COMPACTION]
        assert snapshot.speculation is not None
        assert len(compactions) == snapshot.speculation.compactions > 0
        assert all(event.session == session.number for event in compactions)


OF_A_LOSS = {EventKind.LOST, EventKind.RECOVERED, EventKind.FAILED}


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.trio
async def test_a_loss_is_one_event_however_often_it_is_tried_again_and_the_other_stage_is_well(
    embedded: bool,
) -> None:
    seen: list[FleetSnapshot] = []
    patient = replace(HASTY, stalled=30.0, lost=60.0)  # or a busy machine would look like a stage in trouble
    async with mortal_fleet(
        lambda stage, start: FakeEngine(stage, 2), deadlines=patient, embedded=embedded
    ) as mortal:
        session = mortal.fleet.new_session()

        def tell(sentence: str) -> None:
            mortal.told.append(sentence)
            seen.append(mortal.fleet.snapshot())

        def kill(text: str) -> None:
            mortal.peers.unwilling = "a peer did not start"
            mortal.doors[1].closed = True
            mortal.doors[1].cut()

        mortal.fleet.on_trouble = tell
        await mortal.fleet.generate(session, request([1], max_tokens=40), Letters(), on_text=kill)
        await mortal.fleet.wait_failed()
        seen.append(mortal.fleet.snapshot())
    assert len(set(mortal.told)) > 1
    assert {one.stages[0].state for one in seen} == {StageState.READY}
    assert not {one.stages[1].state for one in seen} & {StageState.READY, StageState.BUSY}
    assert {one.tokens_per_s for one in seen} == {0.0}
    events = [(one.kind, one.stage) for one in seen[-1].events if one.kind in OF_A_LOSS]
    assert events == [(EventKind.LOST, 1), (EventKind.FAILED, None)]


@pytest.mark.trio
async def test_every_stage_that_is_lost_is_one_event_until_the_chain_serves_again() -> None:
    async with fake_fleet(2) as fake:
        fleet = fake.fleet
        for stage, sentence in ((1, "gone"), (1, "still gone"), (0, "gone too"), (1, "gone again")):
            fleet.note_trouble(sentence, fleet.chain, stage)
        assert fleet.trouble == "gone again"
        told = [(one.stage, one.text) for one in fleet.snapshot().events if one.kind is EventKind.LOST]
        assert told == [(1, "gone"), (0, "gone too")]
        fleet.adopt(fleet.chain, Recovery(Loss(1, "here", Cause.DIED, 1.0, 1.0), 2, 2.0))
        fleet.note_trouble("lost once more", fleet.chain, 1)
        assert [one.kind for one in fleet.snapshot().events if one.kind in OF_A_LOSS] == [
            EventKind.LOST,
            EventKind.LOST,
            EventKind.RECOVERED,
            EventKind.LOST,
        ]


@pytest.mark.trio
async def test_a_loss_and_its_recovery_are_events_of_the_stage() -> None:
    async with mortal_fleet(lambda stage, start: FakeEngine(stage, 2), deadlines=HASTY) as mortal:
        mortal.doors[1].cut()
        await wait_for(lambda: mortal.fleet.recoveries)
        events = mortal.fleet.snapshot().events
        told = [(event.kind, event.stage) for event in events]
        assert told[0] == (EventKind.LOST, 1)
        assert told[-1] == (EventKind.RECOVERED, 1)
        assert "stopped working" in events[0].text
        assert events[-1].text.endswith("as epoch 2.")
