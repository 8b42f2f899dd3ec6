"""How often drafts hold, by what made them and by their place in the round (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetchat.fleet.draft.interface import DraftKey, DraftSource, Guess

MEMORY = 0.97  # a trial weighs this much less with each one after it: 33 trials count
PRIOR_TRIALS = 4.0  # that the first expectation is worth; they fade like trials
POOL_TRIALS = 3.0  # that the key's pool is worth to a place
PLACE_MEMORY = 0.99  # and with each round: a place that is not tried any more goes back to the pool

MODEL_PRIOR = 0.5
# By match length, measured on greedy replies of the default model: 0.47, 0.43 and 0.54 for the first three in
# chats, 0.73, 0.67, 0.7, -, 0.9 and 1.0 in rewriting. Later places of a draft are about as good as the first.
NGRAM_PRIORS: Mapping[int, float] = {2: 0.5, 3: 0.5, 4: 0.6, 6: 0.7, 9: 0.85, 16: 0.95}


def prior(key: DraftKey) -> float:
    """What is expected of drafts before any was tried."""
    return NGRAM_PRIORS.get(key.confidence, 0.2) if key.source is DraftSource.NGRAM else MODEL_PRIOR


@dataclass(slots=True)
class _Trials:
    held: float = 0.0
    count: float = 0.0
    round: int = 0

    def add(self, held: bool) -> None:
        self.held = MEMORY * self.held + held
        self.count = MEMORY * self.count + 1

    def fade(self, round_: int, memory: float) -> None:
        share = memory ** (round_ - self.round)
        self.held, self.count, self.round = share * self.held, share * self.count, round_

    def rate(self, expected: float = 0.0, weight: float = 0.0) -> float:
        return (self.held + weight * expected) / (self.count + weight)


class Acceptance:
    """Estimates, for each key and place, the probability that a draft holds when those before it held."""

    def __init__(self) -> None:
        self._pools: dict[DraftKey, _Trials] = {}
        self._places: dict[tuple[DraftKey, int], _Trials] = {}
        self._round = 0

    def observe(self, guesses: Sequence[Guess], emitted: Sequence[int]) -> None:
        """Compare what was guessed, sent or not, with the ids that the chain drew from there on."""
        self._round += 1
        for guess in guesses:
            for place, (guessed, drawn) in enumerate(zip(guess.ids, emitted, strict=False)):
                self._add(guess.key, place, guessed == drawn)
                if guessed != drawn:
                    break

    def first(self, key: DraftKey) -> float:
        return self.chances(key, 1)[0]

    def chances(self, key: DraftKey, count: int) -> list[float]:
        """For the places 0 … count - 1."""
        pool = self._pool(key).rate()
        return [self._chance(key, place, pool) for place in range(count)]

    def _chance(self, key: DraftKey, place: int, pool: float) -> float:
        trials = self._places.get((key, place))
        if trials is None:
            return pool
        trials.fade(self._round, PLACE_MEMORY)
        return trials.rate(pool, POOL_TRIALS)

    def _pool(self, key: DraftKey) -> _Trials:
        """All trials of a key, whatever their place; they begin with what was expected of it."""
        if key not in self._pools:
            self._pools[key] = _Trials(PRIOR_TRIALS * prior(key), PRIOR_TRIALS)
        return self._pools[key]

    def _add(self, key: DraftKey, place: int, held: bool) -> None:
        self._pool(key).add(held)
        trials = self._places.setdefault((key, place), _Trials(round=self._round))
        trials.fade(self._round, PLACE_MEMORY)
        trials.add(held)
