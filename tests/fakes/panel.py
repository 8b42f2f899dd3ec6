"""A fleet at work as the panel gets it: two stages, two chats, guesses, events. All times are made up."""

from __future__ import annotations

from dataclasses import replace

from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.event_log import EventKind, FleetEvent
from fleetchat.fleet.telemetry import (
    FleetSnapshot,
    SessionSnapshot,
    SpeculationSnapshot,
    StageSnapshot,
    StageState,
)
from fleetchat.fleet.timeline import DRAFT_LANE, Block, Lane, TimelineSnapshot, WorkKind, busy_share
from tests.fakes.runtime import snapshot, stage

NOON = 12 * 3600.0  # seconds of local time at the coordinator's clock 0
HISTORY = (1.0, 2.0, 3.0, None, 4.0, 2.0, 2.0, 2.0, 3.0, 5.0, 1.0, 1.0)
GUESSES = SpeculationSnapshot(
    drafter="ngram",
    rounds=110,
    drafted=360,
    accepted=250,
    rollbacks=41,
    cells_masked=58,
    compactions=1,
    depth=4,
    reason="4 of at most 8 promise most tokens/s",
    recent=(0.0, 0.25, 0.5, 0.75, 1.0),
    by_depth=(10, 0, 0, 0, 90),
    by_accepted=(20, 5, 10, 15, 40),
)


def busy_stage(index: int) -> StageSnapshot:
    """A stage with all of its figures."""
    return replace(
        stage(index, state=StageState.BUSY),
        compute_history=HISTORY,
        queue_history=HISTORY,
        network_history=HISTORY,
        memory_resident=135_000_000,
        cells_dead=58,
        heat=1.04,
    )


def step_blocks(lane: int, start: float, seconds: float) -> tuple[Block, ...]:
    """Decode of chat 1, verify of chat 2, idle; 20 ms each; stage 1 a step later."""
    blocks, step = [], 0.02
    for number in range(int(seconds / step) - lane):
        begin = start + (number + lane) * step
        if number % 3 == 0:
            blocks.append(Block(lane, 1, WorkKind.DECODE, 1, begin, begin + step))
        elif number % 3 == 1:
            blocks.append(Block(lane, 2, WorkKind.VERIFY, 5, begin, begin + step))
    return tuple(blocks)


def timeline(end: float = 100.0, seconds: float = 1.0, *, prefill: bool = False) -> TimelineSnapshot:
    """The second before `end`, complete but for its last 20 ms."""
    start, complete = end - seconds, end - 0.02
    lanes = [step_blocks(lane, start, seconds - 0.02) for lane in range(2)]
    if prefill:
        lanes = [
            (Block(0, 3, WorkKind.PREFILL, 900, start, start + 0.7),),
            (Block(1, 3, WorkKind.PREFILL, 900, start + 0.7, end),),
        ]
    draft = (Block(DRAFT_LANE, 2, WorkKind.DRAFT, 4, start + 0.5, start + 0.56),)
    return TimelineSnapshot(
        start,
        end,
        complete,
        tuple(Lane(lane, blocks, busy_share(blocks, start, complete)) for lane, blocks in enumerate(lanes)),
        Lane(DRAFT_LANE, draft, busy_share(draft, start, complete)),
    )


EVENTS = (
    FleetEvent(
        1, 61.0, EventKind.LOST, "Stage 1 (127.0.0.1:41001) stopped working. It is being restarted.", stage=1
    ),
    FleetEvent(2, 63.25, EventKind.RECOVERED, "The chain serves again 2.3 s later, as epoch 2.", stage=1),
    FleetEvent(3, 95.0, EventKind.COMPACTION, "210 dead cells were removed, 512 live ones stay", session=2),
)


def sessions() -> tuple[SessionSnapshot, ...]:
    return tuple(
        SessionSnapshot(number, 300 + number, 0, 0, True, 10.2 + number, GUESSES, 299, 29 * (number - 1))
        for number in (1, 2)
    )


def busy_snapshot(end: float = 100.0) -> FleetSnapshot:
    """Two chats that write."""
    return replace(
        snapshot(busy_stage(0), busy_stage(1)),
        epoch=2,
        recoveries=1,
        sessions=sessions(),
        speculation=GUESSES,
        timeline=timeline(end),
        taken=end,
        wall_shift=NOON,
        return_history=HISTORY,
        events=EVENTS,
    )


def resting_snapshot(end: float) -> FleetSnapshot:
    """The same chats, written to their ends; nothing has moved for a second."""
    before = busy_snapshot(end)
    none = tuple(Lane(lane, (), 0.0) for lane in range(2))
    return replace(
        before,
        sessions=tuple(replace(one, generating=False, tokens_per_s=0.0) for one in before.sessions),
        timeline=TimelineSnapshot(end - 1.0, end, end, none, Lane(DRAFT_LANE, (), 0.0)),
    )


def busy_view(end: float = 100.0) -> PanelView:
    return PanelView(busy_snapshot(end), {1: 1, 2: 2})


def hot_view() -> PanelView:
    """Stage 1 is twice as slow as it was."""
    snapshot = busy_snapshot()
    hot = replace(snapshot.stages[1], heat=2.04, throttling=True)
    return PanelView(replace(snapshot, stages=(snapshot.stages[0], hot)), {1: 1, 2: 2})


def lost_view() -> PanelView:
    """Stage 1 is gone, and is being replaced."""
    snapshot = busy_snapshot()
    gone = replace(snapshot.stages[1], state=StageState.RECOVERING, detail="waiting for it to answer")
    trouble = (
        "Stage 1 (127.0.0.1:41001) stopped working. It is being restarted; your answers go on by themselves."
    )
    return PanelView(
        replace(snapshot, stages=(snapshot.stages[0], gone), trouble=trouble, tokens_per_s=0.0), {1: 1, 2: 2}
    )


def prefill_view() -> PanelView:
    """Chat 3 reads a long prompt."""
    snapshot = busy_snapshot()
    reading = SessionSnapshot(3, 1800, 900, 1800, True, 0.0)
    return PanelView(
        replace(snapshot, timeline=timeline(prefill=True), sessions=(*snapshot.sessions, reading)),
        {1: 1, 2: 2, 3: 3},
    )
