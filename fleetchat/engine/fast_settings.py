"""Which OpenVINO settings `fast` takes on a machine: the candidates, and the rule that chooses (pure).

A candidate is timed as a stage is used: one row (decoding), 8 rows (a verify, or several conversations), and
a chunk of 64 rows (reading a prompt).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

DECODE_ROWS, VERIFY_ROWS, CHUNK_ROWS = 1, 8, 64
WEIGHTS = {DECODE_ROWS: 0.6, VERIFY_ROWS: 0.25, CHUNK_ROWS: 0.15}
"""Exponents of the three times in a score: a conversation spends most of its time on single rows."""

SHORTEST = 1e-9  # seconds; a clock may stand still
MARGIN = 1.03  # of the best score: within it the more exact candidate wins


class FastSettings(NamedTuple):
    """`compute` is f32 or bf16; `group` how many activations share a scale as int8, 0 = not quantised."""

    compute: str
    group: int

    def __str__(self) -> str:
        quantised = (
            f"activations quantised in groups of {self.group}" if self.group else "activations not quantised"
        )
        return f"{self.compute}, {quantised}"


DEFAULT = FastSettings("f32", 32)
PLAIN = FastSettings("f32", 0)
HALF = FastSettings("bf16", 32)
BY_EXACTNESS = (PLAIN, DEFAULT, HALF)  # the most exact first


@dataclass(frozen=True, slots=True)
class Timing:
    """Median seconds of a stage for one row, for 8 and for 64 rows."""

    decode: float
    verify: float
    chunk: float

    @property
    def score(self) -> float:
        """Seconds; the weighted geometric mean, so that no time counts more for being longer."""
        weighted = zip(WEIGHTS.values(), (self.decode, self.verify, self.chunk), strict=True)
        return math.exp(sum(weight * math.log(max(seconds, SHORTEST)) for weight, seconds in weighted))

    def or_faster(self, other: Timing) -> Timing:
        """The lesser of either's times: what made one of them longer was something else."""
        return Timing(
            min(self.decode, other.decode), min(self.verify, other.verify), min(self.chunk, other.chunk)
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings and why, in words."""

    settings: FastSettings
    reason: str

    def __str__(self) -> str:
        return f"{self.settings} ({self.reason})"


def candidates(threads: int, cores: int, capabilities: Collection[str]) -> tuple[FastSettings, ...]:
    """What is worth timing, the default last.

    `cores` are those that the process may use, `capabilities` what OpenVINO says of the device. With one
    thread, or on one core, bf16 may end the process by SIGFPE (openvino issue 33300).
    """
    half = min(threads, cores) > 1 and "BF16" in capabilities
    return (*((HALF,) if half else ()), PLAIN, DEFAULT)


def choose(timings: Mapping[FastSettings, Timing]) -> FastSettings:
    """The fastest; of those within 3 % of it the most exact. Without any timing the default."""
    if not timings:
        return DEFAULT
    limit = MARGIN * min(timing.score for timing in timings.values())
    return next(one for one in BY_EXACTNESS if one in timings and timings[one].score <= limit)


def explained(chosen: FastSettings, timings: Mapping[FastSettings, Timing]) -> str:
    """Why, against each of the others: what they would take more, or how close they are."""
    others = [one for one in BY_EXACTNESS if one in timings and one != chosen]
    if chosen not in timings or not others:
        return "nothing else could be measured here"
    own = timings[chosen].score
    return "measured here: " + "; ".join(_against(other, timings[other].score / own) for other in others)


def _against(other: FastSettings, ratio: float) -> str:
    if ratio < 1:
        return f"{other} takes {100 * (1 - ratio):.1f} % less and is less exact"
    return f"{other} takes {100 * (ratio - 1):.0f} % more time"
