"""Warming up, with a pretend runner."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fleetchat.engine.states import Shape
from fleetchat.engine.warm_up import affordable_cells, measured_over_allocation, reason, warmed_up
from fleetchat.errors import FleetError

XML = Path("stage.xml")


class PretendRunner:
    """A session is the list of its pieces; each cell costs `cost` bytes of resident memory."""

    def __init__(self, cost: int = 0, error: str = "", grows: bool = True) -> None:
        self.cost, self.error, self.grows = cost, error, grows
        self.resident = 1 << 30

    def trial_session(self) -> list[int]:
        return []

    def trial_run(self, session: list[int], rows: int) -> None:
        if self.error:
            raise RuntimeError(self.error)
        session.append(rows)
        self.resident += rows * self.cost

    def state_shapes(self, session: list[int]) -> dict[str, Shape]:
        return {"k": (1, 2, sum(session) if self.grows else 5, 4)}


def test_prefill_and_decode() -> None:
    assert warmed_up(PretendRunner(), XML, 6).axes == {"k": 2}


def test_a_model_that_cannot_be_run() -> None:
    with pytest.raises(FleetError, match=r"stage\.xml cannot be run: bad shape"):
        warmed_up(PretendRunner(error="Check failed at x.cpp:1:\nbad shape\n"), XML, 6)


def test_a_model_that_cannot_be_rolled_back() -> None:
    with pytest.raises(FleetError, match="does not grow"):
        warmed_up(PretendRunner(grows=False), XML, 6)


@pytest.mark.parametrize(("factor", "expected"), [(1.5, 1.5), (0.2, 2 * math.log(2)), (9.0, 4.0)])
def test_over_allocation(factor: float, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = PretendRunner(cost=int(factor * 100_000))
    monkeypatch.setattr("fleetchat.engine.warm_up.resident_memory", lambda: runner.resident)
    assert measured_over_allocation(runner, 64, 100_000) == expected


def test_what_cannot_be_measured_counts_double(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured_over_allocation(PretendRunner(cost=10), 64, 10) == 2.0
    monkeypatch.setattr("fleetchat.engine.warm_up.resident_memory", lambda: 0)
    assert measured_over_allocation(PretendRunner(cost=100_000), 64, 100_000) == 2.0


def test_affordable_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetchat.engine.warm_up.available_memory", lambda: 1_000_000)
    assert affordable_cells(100, 2.0) == 4000
    assert affordable_cells(100, 2.0, sharers=2) == 2000


def test_the_reason_is_the_last_line() -> None:
    assert reason(RuntimeError("Exception from a.cpp:1:\n\n  out of memory \n\n")) == "out of memory"
    assert reason(RuntimeError("")) == "RuntimeError"
