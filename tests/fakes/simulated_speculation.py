"""Speculation in numbers only: drafts that hold with given chances, traversals that take given times."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fleetchat.fleet.draft.depth import DepthPolicy, Round
from fleetchat.fleet.draft.interface import NOTHING, DraftKey, Guess, Proposal

# Seconds of one traversal on a chain of two PCs by its rows, measured on the default model; linear between.
MEASURED = {1: 0.0160, 2: 0.0172, 4: 0.0225, 8: 0.0330, 16: 0.0550}
RIGHT, WRONG = 1, 0
MOST = 16

Profile = Callable[[int], Sequence[tuple[DraftKey | None, float, float]]]
"""Round number -> (key or None for no guess, share of the rounds, chance that a draft holds)."""


def traversal(rows: int) -> float:
    known = sorted(MEASURED)
    high = next(number for number in known if number >= rows)
    low = max(number for number in known if number <= rows)
    if high == low:
        return MEASURED[rows]
    return MEASURED[low] + (MEASURED[high] - MEASURED[low]) * (rows - low) / (high - low)


@dataclass
class SimulatedSession:
    """`delay` is on each of the two network legs; `draft` the seconds of one drafted token."""

    profile: Profile
    delay: float = 0.0
    draft: float = 0.0
    noise: float = 0.1
    seed: int = 0
    depths: list[int] = field(default_factory=list)
    wasted: float = 0.0

    def tokens_per_second(self, policy: DepthPolicy, rounds: int, *, after: int = 0) -> float:
        """Of the rounds from number `after` on."""
        chance = random.Random(self.seed)
        tokens, seconds, fed = 0, 0.0, 0
        for number in range(rounds):
            keys = self.profile(number)
            key, _, holds = chance.choices(keys, weights=[share for _, share, _ in keys])[0]
            run = 0  # drafts that would hold
            while run < MOST and chance.random() < holds:
                run += 1
            proposal, emitted, drafting = NOTHING, (RIGHT,), 0.0
            if key is not None:
                depth = policy.choose(key)
                proposal = self._proposal(key, depth, run, fed)
                accepted = min(depth, run)
                emitted = (RIGHT,) * (accepted + 1)
                if self.draft and depth:
                    drafting = self.draft * (depth + 0.12 * max(0, fed - 1))
                    fed = 0
            self.depths.append(len(proposal.ids))
            fed += len(emitted)
            rows = len(proposal.ids) + 1
            spent = (traversal(rows) + 2 * self.delay) * (1 + self.noise * chance.uniform(-1, 1))
            policy.record(Round(proposal, emitted, rows, spent, drafting))
            if number >= after:
                tokens += len(emitted)
                seconds += spent + drafting
        return tokens / seconds

    def _proposal(self, key: DraftKey, depth: int, run: int, fed: int) -> Proposal:
        ids = tuple(RIGHT if place < run else WRONG for place in range(depth + (self.draft == 0)))
        return Proposal(ids[:depth], (Guess(key, ids),) if ids else (), fed)
