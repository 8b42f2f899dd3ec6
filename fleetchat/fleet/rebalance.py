"""Another cut for a fleet that serves, from what it measures of itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleetchat.fleet.live import LiveReport, live_facts
from fleetchat.fleet.placement import Load, Plan, gigabytes, place, usable
from fleetchat.fleet.plan_table import aligned, milliseconds

COLUMNS = ("stage", "peer", "layers", "new", "a batch", "then", "needs", "may use")
WORTHWHILE = 1.05  # times faster: below it nothing is proposed


@dataclass(frozen=True, slots=True)
class Proposal:
    """First and last layer of each peer, now and then. Times in seconds: of the slowest stage for a batch."""

    now: tuple[tuple[int, int], ...]
    then: tuple[tuple[int, int], ...]
    slowest_now: float
    slowest_then: float
    lines: tuple[str, ...]

    @property
    def worthwhile(self) -> bool:
        """Whether moving brings anything."""
        return self.now != self.then and self.slowest_now >= WORTHWHILE * self.slowest_then


def propose(load: Load, report: LiveReport) -> Proposal:
    """The cut with the fastest slowest stage, on the same peers in the same order.

    Raises InputError, in numbers, when the model does not fit on them with their last 20 % kept free.
    """
    peers = live_facts(load, report)
    plan = place(load, peers, leave_out=False)
    now = tuple((stage.first, stage.last) for stage in report.stages)
    then = tuple((stage.first, stage.last) for stage in plan.stages)
    taken = [stage.compute_ms / 1000 for stage in report.stages]
    expected = [
        load.touched(first, last) * peer.decode for (first, last), peer in zip(then, peers, strict=True)
    ]
    rows = [COLUMNS]
    for number, (stage, placed) in enumerate(zip(report.stages, plan.stages, strict=True)):
        rows.append(
            (
                str(number),
                stage.name,
                f"{stage.first}-{stage.last}",
                f"{placed.first}-{placed.last}",
                milliseconds(taken[number]),
                milliseconds(expected[number]),
                gigabytes(placed.memory),
                gigabytes(usable(peers[number])),
            )
        )
    proposal = Proposal(now, then, max(taken), max(expected), ())
    lines = (*aligned(rows, left=(1, 2, 3)), "", *_conclusion(proposal, report, plan))
    return Proposal(now, then, max(taken), max(expected), lines)


def _conclusion(proposal: Proposal, report: LiveReport, plan: Plan) -> list[str]:
    measured = f"measured by the chat that runs: {report.batches:,} batches of its last busy minute"
    if not proposal.worthwhile:
        return ["the cut is right as it is: no other one makes the slowest stage faster", measured]
    gain = 100 * (proposal.slowest_now / proposal.slowest_then - 1)
    slowest = report.stages[plan.slowest.peer].name
    return [
        f"the slowest stage would take {milliseconds(proposal.slowest_then)} a batch ({slowest}) instead of "
        f"{milliseconds(proposal.slowest_now)}: {gain:.0f} % faster with several conversations",
        measured,
    ]
