"""`bench rollback`: hiding rejected rows by mask against cutting them out of the cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from fleetchat.bench.fusion import text_ids
from fleetchat.bench.pairs import Measure, Row, alternate, paired_row
from fleetchat.bench.pinning import pinned
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.stage_engine import OpenEngine, States, feed, key_of, load_stage
from fleetchat.bench.subject import prepare

STAGES = 2
STAGE = 0  # the one with more layers
LENGTHS = (256, 1024, 4096)
REJECTED = 4  # rows a rollback
STEPS = 200
QUICK_STEPS = 24
QUICK_READ = 1024  # rows that are read; their cells are repeated until there are enough
STEPS_A_PAIR = 8  # then all sessions are brought back to their length, without dead cells
DEAD = (64, 512, 2048)
LIVE = 1024  # cells beside the dead ones
MASK, TRIM, PLAIN = 1, 2, 3  # sessions


async def measure_rollback(setting: Setting) -> Report:
    """Rows `rollback.*` and `rollback.dead.*`. Raises FleetchatError."""
    subject = await prepare(setting, STAGES)
    steps = QUICK_STEPS if setting.effort.quick else STEPS
    ids = text_ids(subject, max(*LENGTHS, LIVE + max(DEAD)))
    with pinned(setting.cores):
        engine = load_stage(subject, STAGE, setting.precision)
        read = QUICK_READ if setting.effort.quick else len(ids)
        setting.note(f"reading {read} rows for {len(ids)} cells")
        feed(engine, MASK, 0, ids[:read])
        states = engine.repeated(engine.states(MASK, read), -(-len(ids) // read))
        rows = []
        for length in LENGTHS:
            setting.note(f"rollback at {length} cells, {steps} steps")
            rows.append(_rollback_row(Ground(engine, states, ids), length, steps))
        rows += await _dead_rows(setting, Ground(engine, states, ids))
    return Report(
        title="taking back rejected rows: by mask, and by cutting them out of the cache",
        setup=(
            f"stage {STAGE} of {STAGES} of {subject.manifest.model} "
            f"({subject.manifest.stages[STAGE].attention_layers} layers), {setting.precision}, one thread, "
            f"on the engine that a peer runs; {steps} alternating steps of {REJECTED} rows taken back, "
            f"{STEPS_A_PAIR} a pair; dead cells beside {LIVE} live ones, {setting.effort.seconds:g} s each"
        ),
        formula=(
            "ms = taking back + (next row - next row of a session that took nothing back), medians of a "
            "pair's steps, a growth below 0 counts as 0; rollback.dead: rows/s with dead cells / without"
        ),
        ceiling="0: a mask needs no copy; dead cells cost attention time, live + dead against live",
        rows=tuple(rows),
        notes=() if read == len(ids) else (f"the cells are those of {read} rows, again and again",),
    )


@dataclass(frozen=True, slots=True)
class Ground:
    """What every session starts from: the cells of a long text."""

    engine: OpenEngine
    states: States
    ids: list[int]

    def lay(self, session: int, length: int) -> None:
        """`length` live cells and no dead ones, in buffers that have grown beyond that."""
        self.engine.restore(session, self.states, length)
        feed(self.engine, session, length, self.ids[:1])
        self.engine.trim(session, length)
        feed(self.engine, session, length, self.ids[:1])

    def append(self, session: int, rows: int) -> None:
        held = self.engine.length(key_of(session))
        feed(self.engine, session, held, self.ids[:rows])

    def hide(self, session: int, rows: int) -> None:
        """Take the last rows back by mask."""
        key = key_of(session)
        self.engine.truncate(key, self.engine.length(key) - rows)

    def trim(self, session: int, rows: int) -> None:
        """Take the last rows back by copying what remains."""
        self.engine.trim(session, self.engine.length(key_of(session)) - rows)


def _rollback_row(ground: Ground, length: int, steps: int) -> Row:
    masks, trims = [], []
    for _ in range(steps // STEPS_A_PAIR):
        for session in (MASK, TRIM, PLAIN):
            ground.lay(session, length)
        mask, trim = _pair(ground)
        masks.append(mask)
        trims.append(trim)
    for session in (MASK, TRIM, PLAIN):
        ground.engine.forget(key_of(session))
    return paired_row(f"rollback.{length}", "ms", masks, trims)


def _pair(ground: Ground) -> tuple[float, float]:
    """ms of a rollback by mask and by trim, each with what it adds to the next row."""
    take_back = {MASK: ground.hide, TRIM: ground.trim}
    back: dict[int, list[float]] = {MASK: [], TRIM: []}
    following: dict[int, list[float]] = {MASK: [], TRIM: [], PLAIN: []}
    for _ in range(STEPS_A_PAIR):
        for session in (MASK, TRIM, PLAIN):
            ground.append(session, REJECTED)
            if session in take_back:
                back[session].append(_timed(partial(take_back[session], session, REJECTED)))
            following[session].append(_timed(partial(ground.append, session, 1)))
    plain = median(following[PLAIN])
    growth = {session: max(0.0, median(following[session]) - plain) for session in back}
    return 1000 * (median(back[MASK]) + growth[MASK]), 1000 * (median(back[TRIM]) + growth[TRIM])


async def _dead_rows(setting: Setting, ground: Ground) -> list[Row]:
    """Decoding speed beside dead cells, against none."""

    def decoding(dead: int) -> Measure:
        async def measure(pair: int) -> float:
            ground.lay(MASK, LIVE + dead)
            ground.hide(MASK, dead + 1)
            rows = 0
            started = time.perf_counter()
            while (now := time.perf_counter()) - started < setting.effort.seconds:
                ground.append(MASK, 1)
                rows += 1
            ground.engine.forget(key_of(MASK))
            return rows / (now - started)

        return measure

    setting.note(f"decoding beside {', '.join(map(str, DEAD))} dead cells and none")
    measured = await alternate(
        {str(dead): decoding(dead) for dead in (*DEAD, 0)},
        setting.effort.pairs,
        lambda pair: setting.note(f"pair {pair + 1} of {setting.effort.pairs}"),
    )
    return [
        paired_row(f"rollback.dead.{dead}", "tokens/s", measured[str(dead)], measured["0"]) for dead in DEAD
    ]


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
