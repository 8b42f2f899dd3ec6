"""How fast the chain is just now, from what the stages say of each batch (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from fleetchat.fleet.batching import Pace
from fleetchat.wire.frames import StageTiming

WEIGHT = 0.15  # of a new sample: about the last dozen batches count
LEAST_SHARE = 0.05  # of a batch's time that is put down to its prefill rows, whatever the rest took before


def blended(before: float, sample: float) -> float:
    """Exponential moving average; the first sample counts whole."""
    return sample if before == 0 else before + WEIGHT * (sample - before)


class PaceKeeper:
    """Averages over batches without prefill, and over the prefill rows of the others."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.stage_seconds: list[float] = []

    def note(
        self,
        timings: Sequence[StageTiming],
        *,
        rows: int,
        prefill_rows: int,
        seconds: float,
        calm: bool = True,
    ) -> None:
        """One batch of `rows` rows, all of them computed, came back `seconds` after it was sent.

        `calm` says that no prefill was in the chain meanwhile. Chunks queue in sockets as well, where no
        stage can see it: a traversal among them would look longer, and call for still more chunks.
        """
        if not timings or rows == 0:
            return
        compute = [timing.compute_us / 1e6 for timing in timings]
        if prefill_rows:
            per_row = self._prefill_seconds(compute, alone=rows == prefill_rows) / prefill_rows
            chunk_row = blended(self.pace.chunk_row, per_row)
            self.pace = Pace(self.pace.traversal, self.pace.slowest_stage, chunk_row)
            return
        if len(self.stage_seconds) != len(compute):
            self.stage_seconds = compute
        self.stage_seconds = [blended(b, s) for b, s in zip(self.stage_seconds, compute, strict=True)]
        queued = sum(timing.queue_us for timing in timings) / 1e6
        unqueued = max(seconds - queued, sum(compute))
        traversal = self.pace.traversal
        if calm or traversal == 0:
            traversal = blended(traversal, unqueued)
        self.pace = Pace(traversal, max(self.stage_seconds), self.pace.chunk_row)

    def _prefill_seconds(self, compute: list[float], *, alone: bool) -> float:
        """What a batch's prefill rows took on the slowest stage; the decodes beside them take their usual."""
        if alone or len(self.stage_seconds) != len(compute):
            return max(compute)
        others = zip(compute, self.stage_seconds, strict=True)
        return max(max(whole - usual, LEAST_SHARE * whole) for whole, usual in others)
