"""What is known of the fleet on the screen's side (pure)."""

from __future__ import annotations

from dataclasses import replace

from fleetchat.app.panel.history import BlockHistory
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.telemetry import FleetSnapshot, Percentiles
from fleetchat.fleet.timeline import Block


class PanelModel:
    """The newest view, and the blocks of the last minutes."""

    def __init__(self) -> None:
        self.view: PanelView | None = None
        self.blocks = BlockHistory()

    def take(self, view: PanelView) -> list[Block]:
        """A newer view; returns the blocks that it brought."""
        self.view = view
        return self.blocks.take(view.snapshot.timeline) if view.snapshot.timeline is not None else []

    def still(self, seconds: float = 1.0) -> PanelView | None:
        """What the lines are made of while nothing moves: equal at two moments at which they are the same.

        None while work of the last `seconds` is in sight, or on its way.
        """
        view = self.view
        if view is None or not self.blocks.is_idle(seconds):
            return None
        return replace(view, snapshot=as_shown(view.snapshot))

    def forget(self) -> None:
        """The fleet is gone."""
        self.view = None
        self.blocks = BlockHistory()


def as_shown(snapshot: FleetSnapshot) -> FleetSnapshot:
    """Without what nobody sees: the moment, and what is finer than the lines show."""
    return replace(
        snapshot,
        timeline=None,
        taken=0.0,
        wall_shift=float(round(snapshot.wall_shift / 60)),  # somebody may set the clock
        return_network_ms=_rounded(snapshot.return_network_ms),
        stages=tuple(
            replace(
                stage,
                compute_ms=_rounded(stage.compute_ms),
                queue_ms=_rounded(stage.queue_ms),
                network_ms=_rounded(stage.network_ms),
            )
            for stage in snapshot.stages
        ),
    )


def _rounded(times: Percentiles) -> Percentiles:
    return Percentiles(round(times.p50, 1), round(times.p95, 1), min(times.count, 1))
