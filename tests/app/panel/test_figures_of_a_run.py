"""Every figure of the panel against the raw log of the run: a real coordinator, stages of known times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import median

import pytest
import trio
import trio.testing

from fleetchat.app.panel import numbers
from fleetchat.app.panel.history import BlockHistory
from fleetchat.app.panel.lanes import lane_cells
from fleetchat.app.panel.layout import Watching, full_lines
from fleetchat.app.panel.lines import Line
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.view import PanelView
from fleetchat.bench.relay import RelayedLegs, Shape
from fleetchat.fleet.coordinator import Fleet, FleetSession
from fleetchat.fleet.draft.interface import ChooseDepth, DraftKey, DraftSource, Guess, Proposal, ShouldStop
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.timeline import Block, WorkKind, kind_of
from fleetchat.wire.frames import Draw
from tests.fakes.chain import Letters, fake_fleet, request
from tests.fakes.engine import by_position
from tests.fakes.scripted_chain import (
    GRANTED,
    Asked,
    CellEvent,
    Compacted,
    Fed,
    Kept,
    Logged,
    ScriptedChain,
    scripted_fleet,
)
from tests.peer.coordinator import wait_for

pytestmark = pytest.mark.trio

LEGS = [0.001, 0.004, 0.002]
WIDTH = 138


class SometimesRight:
    """Three guesses a round; position p is guessed wrong where p is divisible by `wrong`."""

    name = "sometimes"

    def __init__(self, wrong: int = 4) -> None:
        self._wrong = wrong

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = lambda: False,
    ) -> Proposal:
        key = DraftKey(DraftSource.MODEL)
        start = len(committed)
        places = range(start, start + min(3, depth(key)))
        ids = tuple(by_position(0, place) if place % self._wrong else 1 for place in places)
        return Proposal(ids, (Guess(key, ids),))

    def forget(self, session: int) -> None:
        """Nothing is kept."""


def steady(stage: int, rows: int, now: float) -> float:
    """Stage 0 takes 5 ms and 1 ms a row, stage 1 2 ms more."""
    return 0.005 + 0.002 * stage + 0.001 * rows


def ignore(text: str) -> None:
    """Nobody reads it."""


async def converse(fleet: Fleet, session: FleetSession, prompt: int, tokens: int) -> None:
    await fleet.generate(session, request([7] * prompt, max_tokens=tokens), Letters(), on_text=ignore)


def shown(lines: Sequence[Line]) -> dict[tuple[str, str], list[str]]:
    """What the panel says, by figure and subject, in reading order."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        for span in line:
            if span.figure:
                found.setdefault((span.figure, span.subject), []).append(span.text.strip())
    return found


def panel_of(fleet: Fleet, model: PanelModel) -> dict[tuple[str, str], list[str]]:
    view = PanelView(fleet.snapshot(), {1: 1, 2: 2})
    model.take(view)
    return shown(full_lines(view, model.blocks, Watching(), WIDTH, 40))


def rank(values: list[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def returned_by(chain: ScriptedChain, now: float) -> list[Logged]:
    return [one for one in chain.log if one.returned <= now]


def medians(log: list[Logged], values: list[float], now: float) -> list[float | None]:
    """The last minute in steps of 5 s of the clock."""
    last = int(now // 5)
    steps = [
        [value for one, value in zip(log, values, strict=True) if one.returned // 5 == step]
        for step in range(last - 11, last + 1)
    ]
    return [median(step) if step else None for step in steps]


async def test_every_figure_is_that_of_the_raw_log(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_fleet(steady, LEGS, drafter=SometimesRight(), depth=3) as (fleet, chain),
        trio.open_nursery() as nursery,
    ):
        model = PanelModel()
        for prompt in (40, 90):
            nursery.start_soon(converse, fleet, fleet.new_session(), prompt, 3000)
            await trio.testing.wait_all_tasks_blocked()  # so that the chain has the same number for it
        while trio.current_time() < 12.0:
            await trio.sleep(0.25)
            panel_of(fleet, model)
        await trio.sleep(0.1234)
        now = trio.current_time()
        said = panel_of(fleet, model)
        log = returned_by(chain, now)
        _check_stages(said, log, now)
        _check_speeds(said, log, now)
        _check_speculation(said, chain, log)
        _check_lanes(model.blocks, log, now)
        for session in fleet.sessions:
            session.stop()


def _check_stages(said: dict[tuple[str, str], list[str]], log: list[Logged], now: float) -> None:
    for stage in range(2):
        name = f"stage {stage}"
        for figure, values in (
            ("compute", [round(one.passages[stage].compute * 1e6) / 1000 for one in log]),
            ("queue", [round(one.passages[stage].queue * 1e6) / 1000 for one in log]),
            ("network", [LEGS[stage] * 1000] * len(log)),
        ):
            assert said[figure, name] == [
                numbers.milliseconds(rank(values, 0.50)),
                numbers.milliseconds(rank(values, 0.95)),
                numbers.history_bars(medians(log, values, now), 12).strip(),
            ], (figure, name)
        assert said["state", name] == ["busy"]
        assert said["layers", name] == [f"{3 * stage}–{3 * stage + 2}"]
        assert said["heat", name] == ["1.0x"]
    assert said["network", "the way back"][:2] == ["2.0", "2.0"]


def _check_speeds(said: dict[tuple[str, str], list[str]], log: list[Logged], now: float) -> None:
    times: dict[int, list[float]] = {1: [], 2: []}
    for one in log:
        for (session, *_), emitted in zip(one.slices, one.drawn, strict=True):
            times[session] += [one.returned] * emitted
    recent = {session: [when for when in own if when >= now - 2.0] for session, own in times.items()}
    every = sorted(recent[1] + recent[2])
    speed = (len(every) - 1) / (every[-1] - every[0])
    assert said["speed", "all chats"] == [f"{numbers.speed(speed)} tokens/s"]
    for session, own in recent.items():
        share = speed * len(own) / len(every)
        assert said["speed", f"chat {session}"] == [f"{numbers.speed(share)}/s"]
    tokens = {1: 40 + len(times[1]), 2: 90 + len(times[2])}
    assert said["tokens", "chat 1"] == [numbers.count(tokens[1])]
    assert said["tokens", "chat 2"] == [numbers.count(tokens[2])]
    assert said["tokens", "all"] == [numbers.count(tokens[1] + tokens[2])]


def _check_speculation(
    said: dict[tuple[str, str], list[str]], chain: ScriptedChain, log: list[Logged]
) -> None:
    done = [(*piece, emitted) for one in log for piece, emitted in zip(one.slices, one.drawn, strict=True)]
    for subject, sessions in (("all", {1, 2}), ("chat 1", {1}), ("chat 2", {2})):
        own = [one for one in done if one[0] in sessions and one[4]]
        drafted, accepted = sum(one[2] for one in own), sum(one[3] for one in own)
        returned = {id(one) for one in log}
        rollbacks = [
            cells
            for when, session, cells in chain.rollbacks
            if session in sessions and any(one.sent == when and id(one) in returned for one in chain.log)
        ]
        assert said["acceptance", subject][0] == f"{accepted / drafted:.0%}"
        assert said["rounds", subject] == [numbers.count(len(own))]
        assert said["rollbacks", subject] == [numbers.count(len(rollbacks))]
        assert said["masked", subject] == [numbers.count(sum(rollbacks))]
    assert said["compactions", "all"] == [str(chain.compactions)]
    rounds = Counter(one[3] for one in done if one[2])
    total = sum(rounds.values())
    for number, hits in rounds.items():
        (text,) = said["accepted", f"{hits} of {total} rounds had {number} right"]
        assert text.endswith(f"{hits / total:.0%}")
    assert said["acceptance", "all chats"][0].endswith(
        f"{sum(one[3] for one in done) / sum(one[2] for one in done):.0%} right"
    )


def _check_lanes(blocks: BlockHistory, log: list[Logged], now: float) -> None:
    """Block by block, and the bubbles; then the cells of the lane as they are drawn."""
    window = blocks.window(now, 1.0)
    assert window is not None
    for stage, lane in enumerate(window.stages):
        expected = [
            Block(
                stage,
                session,
                kind_of(rows, drafts),
                rows,
                one.passages[stage].start,
                one.passages[stage].end,
            )
            for one in log
            for session, rows, drafts, _ in one.slices
            if one.passages[stage].end > now - 1.0
        ]
        assert [(one.session, one.kind, one.rows) for one in lane.blocks] == [
            (one.session, one.kind, one.rows) for one in expected
        ]
        for drawn, true in zip(lane.blocks, expected, strict=True):
            assert (drawn.start, drawn.end) == (
                pytest.approx(true.start, abs=2e-6),
                pytest.approx(true.end, abs=2e-6),
            )
        length = window.complete_until - window.start
        covered = sum(
            max(0.0, min(one.end, window.complete_until) - max(one.start, window.start)) for one in expected
        )
        assert lane.busy == pytest.approx(covered / length, abs=1e-4)
        cells = lane_cells(lane.blocks, window.start, window.end, window.complete_until, 50)
        assert {cell.kind for cell in cells} <= {WorkKind.VERIFY, WorkKind.DECODE, None}


def speeds_of(said: dict[tuple[str, str], list[str]]) -> tuple[float, list[float]]:
    """(of all chats, of each chat that is listed)."""
    total = said["speed", "all chats"][0].removesuffix(" tokens/s")
    parts = [
        words[0] for (figure, subject), words in said.items() if figure == "speed" and subject != "all chats"
    ]
    return float(total), [float(words.removesuffix("/s")) for words in parts]


async def test_the_speed_of_all_is_the_sum_of_those_of_the_chats_whoever_begins_or_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with (
        scripted_fleet(steady, LEGS, drafter=SometimesRight(), depth=3) as (fleet, _),
        trio.open_nursery() as nursery,
    ):
        model, chats_seen = PanelModel(), []
        sessions = [fleet.new_session(), fleet.new_session()]
        nursery.start_soon(converse, fleet, sessions[0], 40, 1500)
        while sessions[0].generation is not None or not chats_seen:
            await trio.sleep(0.1)
            if len(chats_seen) == 30:
                nursery.start_soon(converse, fleet, sessions[1], 90, 600)
            total, parts = speeds_of(panel_of(fleet, model))
            assert total == pytest.approx(sum(parts), abs=0.05 * (len(parts) + 1) + 1e-6)
            assert (total > 0) == (fleet.snapshot().tokens_per_s > 0)
            chats_seen.append(sum(part > 0 for part in parts))
        assert [number for number, _ in groupby(chats_seen)][:4] == [0, 1, 2, 1]


def cells_after(events: Sequence[CellEvent]) -> dict[int, tuple[int, int]]:
    """(live, dead) of every session after these."""
    cells: dict[int, tuple[int, int]] = {}
    for event in events:
        match event:
            case Fed(session, first, rows, rollback):
                cells[session] = first + rows, cells.get(session, (0, 0))[1] + rollback
            case Kept(session, kept):
                live, dead = cells[session]
                cells[session] = min(live, kept), dead + max(0, live - kept)
            case Compacted(session):
                cells[session] = cells[session][0], 0
    return cells


async def test_memory_cells_and_compactions_are_those_of_the_raw_log(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def two_turns(session: FleetSession, first: int, second: int) -> None:
        await converse(fleet, session, first, 600)
        await converse(fleet, session, second, 3000)

    async with (
        scripted_fleet(steady, LEGS, drafter=SometimesRight(3), depth=3) as (fleet, chain),
        trio.open_nursery() as nursery,
    ):
        model = PanelModel()
        for first, second in ((40, 30), (90, 600)):
            nursery.start_soon(two_turns, fleet.new_session(), first, second)
            await trio.testing.wait_all_tasks_blocked()
        while trio.current_time() < 20.0:
            await trio.sleep(0.25)
            panel_of(fleet, model)
        await trio.sleep(0.1234)
        said = panel_of(fleet, model)
        for stage in range(2):
            _check_cells_of_stage(said, chain, stage)
        _check_cells_of_chats(said, chain)
        for session in fleet.sessions:
            session.stop()


def _check_cells_of_stage(said: dict[tuple[str, str], list[str]], chain: ScriptedChain, stage: int) -> None:
    """As the stage said when it was asked last."""
    place, asked = max(
        (place, event)
        for place, event in enumerate(chain.cell_log)
        if isinstance(event, Asked) and event.stage == stage
    )
    held = cells_after(chain.cell_log[:place]).values()
    live, dead = sum(cells[0] for cells in held), sum(cells[1] for cells in held)
    assert dead > 0
    name = f"stage {stage}"
    assert said["memory", name] == [numbers.size(asked.memory)]
    assert said["cells-live", name] == [numbers.count(live)]
    assert said["cells-dead", name] == [numbers.count(dead)]
    assert said["cells-free", name] == [numbers.count(GRANTED - live - dead)]


def _check_cells_of_chats(said: dict[tuple[str, str], list[str]], chain: ScriptedChain) -> None:
    dead = {session: cells[1] for session, cells in cells_after(chain.cell_log).items()}
    compacted = Counter(event.session for event in chain.cell_log if isinstance(event, Compacted))
    assert compacted.total() > 0
    for session in (1, 2):
        assert said["cells-dead", f"chat {session}"] == [numbers.count(dead[session])]
        assert said["compactions", f"chat {session}"] == [str(compacted[session])]
    assert said["cells-dead", "all"] == [numbers.count(dead[1] + dead[2])]
    assert said["compactions", "all"] == [str(compacted.total())]


async def test_a_long_prompt_is_a_prefill_on_every_lane(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_fleet(steady, LEGS) as (fleet, chain):
        await converse(fleet, fleet.new_session(), 900, 2)
        snapshot = fleet.snapshot()
        assert snapshot.timeline is not None
        for stage, lane in enumerate(snapshot.timeline.stages):
            first = lane.blocks[0]
            assert (first.kind, first.rows) == (WorkKind.PREFILL, 900)
            assert first.end - first.start == pytest.approx(steady(stage, 900, 0.0), abs=2e-6)
        assert chain.log[0].slices == ((1, 900, 0, 0),)


@pytest.mark.parametrize("slow", [0, 1])
async def test_a_stage_that_is_slowed_to_half_is_marked_within_a_minute(
    slow: int, autojump_clock: trio.testing.MockClock
) -> None:
    def compute(stage: int, rows: int, now: float) -> float:
        return 5 * steady(stage, rows, now) * (2 if stage == slow and now >= 60.0 else 1)

    async with scripted_fleet(compute, LEGS) as (fleet, _), trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(converse, fleet, fleet.new_session(), 20, 4000)
        model, marked = PanelModel(), math.inf
        while trio.current_time() < 125.0:
            await trio.sleep(1.0)
            said = panel_of(fleet, model)
            hot = said["heat", f"stage {slow}"][0]
            assert not said["heat", f"stage {1 - slow}"][0].startswith("HOT")
            if hot.startswith("HOT"):
                marked = min(marked, trio.current_time())
        assert 60.0 < marked < 120.0
        factor = float(hot.removeprefix("HOT ").removesuffix("x"))
        assert 1.7 <= factor <= 2.0, "a part is put down to the context that grew meanwhile"
        events = [(event.kind, event.stage) for event in fleet.snapshot().events]
        assert events == [(EventKind.THROTTLING, slow)]
        for session in fleet.sessions:
            session.stop()


@pytest.mark.parametrize("delayed", [0, 1, 2])
async def test_a_slow_link_shows_on_its_own_leg_only(delayed: int) -> None:
    legs = RelayedLegs(lambda leg, stages: Shape(0.03) if leg == delayed else None)
    async with fake_fleet(2, legs=legs) as fake:

        def medians_of_legs() -> list[float]:
            snapshot = fake.fleet.snapshot()
            measured = [*(stage.network_ms for stage in snapshot.stages), snapshot.return_network_ms]
            return [one.p50 for one in measured if one.count]

        def only_that_leg_is_slow() -> bool:
            """The first round trip of any leg may meet a busy machine: the median does not for long."""
            measured = medians_of_legs()
            return [median >= 30.0 for median in measured] == [leg == delayed for leg in range(3)]

        await wait_for(only_that_leg_is_slow)
