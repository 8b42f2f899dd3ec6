"""The fleet's state as one immutable snapshot (pure: the caller gives the time)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fleetchat.fleet.chain import Stage
from fleetchat.fleet.telemetry import FleetSnapshot, SessionSnapshot, StageSnapshot, StageState

if TYPE_CHECKING:
    from fleetchat.fleet.coordinator import Fleet, FleetSession


def fleet_snapshot(fleet: Fleet, now: float, *, timeline_seconds: float) -> FleetSnapshot:
    """What the panels show at `now` (seconds of the trio clock)."""
    options, chain, listed = fleet.options, fleet.shown_chain, list(fleet.sessions)
    fleet.observer.look(chain.stages, now)
    busy = not fleet.trouble and any(session.generation is not None for session in listed)
    rates = fleet.rates.per_second(now)
    return FleetSnapshot(
        model=options.manifest.model,
        precision=options.precision,
        kv=options.kv,
        epoch=chain.epoch,
        stages=tuple(_stage_snapshot(fleet, stage, busy, now) for stage in chain.stages),
        return_network_ms=chain.return_network_ms.percentiles(now),
        sessions=tuple(_session_snapshot(fleet, one, rates.get(one.number, 0.0)) for one in listed),
        tokens_per_s=sum(rates.values()),
        kv_reason=fleet.kv_reason,
        speculation=fleet.counters.snapshot(fleet.speculation.drafter.name),
        waiting=fleet.admission.waiting,
        evictions=fleet.holdings.evictions,
        forks=fleet.holdings.forks,
        recoveries=len(fleet.recoveries),
        moves=fleet.moves,
        moving=fleet.moving,
        trouble=fleet.trouble,
        timeline=fleet.timeline.snapshot(
            now, seconds=timeline_seconds, in_flight_since=fleet.interleaver.in_flight_since
        ),
        taken=now,
        wall_shift=wall_shift(now),
        return_history=chain.return_network_ms.history(now),
        events=fleet.events.listed(),
    )


def _stage_snapshot(fleet: Fleet, stage: Stage, busy: bool, now: float) -> StageSnapshot:
    record, ready, stats = stage.record, stage.ready, stage.stats
    state, detail = _state_of(stage, busy, now)
    heat, throttling = fleet.observer.heat(stage.index)
    return StageSnapshot(
        index=stage.index,
        address=str(stage.address),
        first_layer=stage.first_layer,
        last_layer=stage.last_layer,
        state=state,
        detail=detail,
        engine=ready.engine if ready else "",
        device=ready.device if ready else "",
        compute_ms=record.compute_ms.percentiles(now),
        queue_ms=record.queue_ms.percentiles(now),
        network_ms=record.network_ms.percentiles(now),
        cells_granted=ready.cells if ready else 0,
        cells_live=sum(one.live for one in stats.sessions) if stats else record.cells_live,
        cells_dead=sum(one.dead for one in stats.sessions) if stats else record.cells_dead,
        memory_resident=stats.memory_resident if stats else 0,
        compute_history=record.compute_ms.history(now),
        queue_history=record.queue_ms.history(now),
        network_history=record.network_ms.history(now),
        heat=heat,
        throttling=throttling,
        settings=ready.settings if ready else "",
    )


def _state_of(stage: Stage, busy: bool, now: float) -> tuple[StageState, str]:
    """With its detail in words."""
    if stage.silent_since is not None and stage.state is not StageState.LOST:
        return StageState.STALLED, f"nothing was heard of it for {now - stage.silent_since:.0f} s"
    if busy and stage.state is StageState.READY:
        return StageState.BUSY, stage.detail
    return stage.state, stage.detail


def _session_snapshot(fleet: Fleet, session: FleetSession, rate: float) -> SessionSnapshot:
    generation = session.generation
    prefilling = generation is not None and generation.prefill_done < generation.prefill_total
    return SessionSnapshot(
        session=session.number,
        tokens=generation.committed if generation else (session.state.length if session.state else 0),
        prefill_done=generation.prefill_done if generation and prefilling else 0,
        prefill_total=generation.prefill_total if generation and prefilling else 0,
        generating=generation is not None,
        tokens_per_s=rate,
        speculation=session.counters.snapshot(fleet.speculation.drafter.name),
        cells_live=session.state.length if session.state else 0,
        cells_dead=session.state.dead if session.state else 0,
    )


def wall_shift(now: float) -> float:
    """What added to `now` gives the local time of day, in seconds since 1970 as if it were UTC."""
    wall = time.time()
    return wall + time.localtime(wall).tm_gmtoff - now
