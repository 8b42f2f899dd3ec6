"""What an engine finds out about its shard by running it before it serves anybody. No OpenVINO here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol, TypeVar

from fleetchat.engine.memory import available_memory, resident_memory
from fleetchat.engine.states import Shape, StateLayout, UnsuitableState, state_layout
from fleetchat.errors import FleetError

MEMORY_SHARE = 0.8  # of the free memory goes to KV cells
OVER_ALLOCATION = 2.0  # the CPU plugin doubles its buffers; taken when the real figure cannot be measured
LEAST_OVER_ALLOCATION = 2 * math.log(2)  # mean capacity / length of a doubling buffer over all lengths
MOST_OVER_ALLOCATION = 4.0
MEASURABLE_GROWTH = 1 << 20  # bytes of nominal KV below which resident memory says nothing
REBUILD = "build the shards again"

Session = TypeVar("Session")


class Runner(Protocol[Session]):
    """The part of an engine that warming up needs."""

    def trial_session(self) -> Session: ...

    def trial_run(self, session: Session, rows: int) -> None:
        """Append any `rows` rows. Raises RuntimeError when the model cannot be run or its output is wrong."""
        ...

    def state_shapes(self, session: Session) -> dict[str, Shape]:
        """By name, in a fixed order."""
        ...


def warmed_up(runner: Runner[Session], xml: Path, rows: int, *, recurrent: bool = False) -> StateLayout:
    """Prefill `rows` and decode once: buffers get allocated and the output's shape is proved.

    Raises FleetError when the shard cannot be run, or keeps anything but one cell a token and, with
    `recurrent`, states that stay as large as they are.
    """
    try:
        session = runner.trial_session()
        runner.trial_run(session, rows)
        before = runner.state_shapes(session)
        runner.trial_run(session, 1)
        return state_layout(before, runner.state_shapes(session), rows, recurrent=recurrent)
    except UnsuitableState as error:
        raise FleetError(
            f"{xml.name} has a state that does not grow by one cell a token: {error}",
            hint=REBUILD,
        ) from error
    except RuntimeError as error:
        raise FleetError(f"{xml.name} cannot be run: {reason(error)}", hint=REBUILD) from error


def measured_over_allocation(runner: Runner[Session], rows: int, cell_bytes: int) -> float:
    """Resident growth over nominal, of a session that outgrew its first buffers; 1.39 to 4.

    The pass before it makes the activations' buffers as large as this one needs them. A short trial finds
    buffers that the pass before it has freed, and pages that are allocated and not yet touched do not
    count, so too low a figure is raised to the mean of a doubling buffer.
    """
    more = 2 * rows + 2  # the first buffers hold twice the first rows
    sessions = [runner.trial_session(), runner.trial_session()]
    resident = []
    for session in sessions:
        resident.append(resident_memory())
        runner.trial_run(session, rows)
        runner.trial_run(session, more)
    nominal = (rows + more) * cell_bytes
    if resident[-1] == 0 or nominal < MEASURABLE_GROWTH:
        return OVER_ALLOCATION
    measured = (resident_memory() - resident[-1]) / nominal
    return min(MOST_OVER_ALLOCATION, max(LEAST_OVER_ALLOCATION, measured))


def affordable_cells(cell_bytes: int, over_allocation: float, sharers: int = 1) -> int:
    """Cells that one of so many stages may have of the free memory, which they share.

    Raises FleetError when the system does not tell how much is free.
    """
    available = available_memory()
    if available == 0:
        raise FleetError("cannot tell how much memory is free", hint="say --kv-cells N")
    return int(available * MEMORY_SHARE / (sharers * cell_bytes * over_allocation))


def reason(error: Exception) -> str:
    """The last line that says something: OpenVINO puts the place in its source first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
