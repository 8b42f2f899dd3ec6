"""Why an engine cannot run a slice. Pure; a refused slice leaves its session untouched."""

from __future__ import annotations

from dataclasses import dataclass

from fleetchat.engine.interface import EngineSlice
from fleetchat.wire.frames import FaultCode

Fault = tuple[str, str]  # (a FaultCode, text)


@dataclass(frozen=True, slots=True)
class StageShape:
    """What a stage takes and gives."""

    first_stage: bool
    last_stage: bool
    hidden: int
    vocabulary: int


def malformed(item: EngineSlice, length: int, shape: StageShape) -> Fault | None:
    """What is wrong with a slice for a session of logical `length`, or None."""
    rows = len(item.token_ids)
    if item.first > length:
        return (FaultCode.GAP, f"first is {item.first}, the session has {length} cells")
    if rows == 0 or not 0 <= item.logit_rows <= rows:
        return (FaultCode.EXCEPTION, f"{item.logit_rows} rows of logits wanted of {rows} rows")
    token_ids = item.token_ids.tolist()  # mostly one to five: cheaper than two numpy reductions
    if min(token_ids) < 0 or max(token_ids) >= shape.vocabulary:
        return (FaultCode.EXCEPTION, f"a token id is outside the vocabulary of {shape.vocabulary}")
    if not shape.first_stage and (item.hidden is None or item.hidden.shape != (rows, shape.hidden)):
        got = None if item.hidden is None else item.hidden.shape
        return (FaultCode.EXCEPTION, f"hidden rows have shape {got}, not {(rows, shape.hidden)}")
    return None


def overflow(*, kept: int, rows: int, others: int, reservation: int, budget: int) -> Fault | None:
    """Whether `rows` more cells are too many.

    `kept` physical cells of the session stay, dead ones included; `others` are those of all other
    sessions. A session may hold `reservation` cells, all together `budget`.
    """
    if kept + rows > reservation:
        text = f"the session has {kept} of its {reservation} cells in use, {rows} more are wanted"
    elif others + kept + rows > budget:
        text = f"{others + kept} of {budget} cells are in use, {rows} more are wanted"
    else:
        return None
    return (FaultCode.OVERFLOW, text)
