"""How many tokens to draft (pure).

A round with K drafts takes C(K) seconds and is expected to give E(K) = 1 + p1 + p1 p2 + … tokens. Over a
reply the most tokens per second come from the K that maximises E(K) - rate · C(K) in every round, rate
being the tokens per second of the reply as a whole (renewal reward theorem; where all rounds are alike
this is the K with the greatest E/C).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Protocol

from fleetchat.fleet.draft.acceptance import Acceptance
from fleetchat.fleet.draft.costs import RoundCosts
from fleetchat.fleet.draft.interface import DraftKey, DraftSource, Proposal

PROBE_SHARE = 0.015  # of the time may go to trying a draft model that does not pay; 2 % is the most
FIRST_PROBES = 12  # that a session starts with
SAVED_PROBES = 20  # that it can save up from what drafts won, so that bad luck does not end them
REST = 7  # rounds for which a draft model that is far from paying is not thought about: that costs 0.2 ms
FAR = 0.5  # of the acceptance that would have to be: below it a model is far from paying
MEASURABLE = 0.01  # of a traversal: what a row is taken to cost at least
RATE_MEMORY = 0.98  # of the tokens per second: 50 rounds count
RATE_ROUNDS = 8  # before them the rate is the best that the round itself could have


@dataclass(frozen=True, slots=True)
class Round:
    """What a round showed. `emitted` are the accepted drafts and the token drawn after them.

    `rows` is that of the whole batch, `seconds` how long its traversal took (0 = not to be counted, for
    instance with a prefill chunk in it), `draft_seconds` how long the proposal took.
    """

    proposal: Proposal
    emitted: tuple[int, ...]
    rows: int
    seconds: float
    draft_seconds: float


class DepthPolicy(Protocol):
    """One object a session."""

    @property
    def reason(self) -> str:
        """Why the last answer was what it was, in a few words."""
        ...

    def choose(self, key: DraftKey, *, other_rows: int = 0) -> int:
        """Drafts worth sending; `other_rows` travel in the same batch beside this session's."""
        ...

    def rest(self) -> bool:
        """Whether a draft model is not asked in this round; each True is one round gone by."""
        ...

    def note_nothing_found(self) -> None:
        """Looking up gave nothing, so nobody asked how many drafts are worth it."""
        ...

    def record(self, round_: Round) -> None: ...


class FixedDepth:
    """Always the same number."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.reason = f"{_drafts(depth)}: fixed"

    def choose(self, key: DraftKey, *, other_rows: int = 0) -> int:
        return self._depth

    def rest(self) -> bool:
        return False

    def note_nothing_found(self) -> None:
        """The depth stays what it is."""

    def record(self, round_: Round) -> None:
        """Nothing is learnt."""


class AdaptiveDepth:
    """Learns from every round; at most `max_draft` drafts. `costs` is shared by the sessions of a chain."""

    def __init__(self, costs: RoundCosts, max_draft: int) -> None:
        self._costs = costs
        self._max = max_draft
        self._acceptance = Acceptance()
        self._rate = _Rate()
        self._lag = 1  # ids that a draft model would have to feed
        self._probe_seconds = float("inf")  # that may be spent; bounded when the first costs are known
        self._probing = False
        self._rest = 0  # rounds left
        self._slept: list[Round] = []  # what went by meanwhile
        self.reason = ""

    def heir(self) -> AdaptiveDepth:
        """For a new session: what was learnt of the drafts holds, and what is left to try them with.

        A session of its own would try a useless draft model all over again.
        """
        heir = AdaptiveDepth(self._costs, self._max)
        heir._acceptance = deepcopy(self._acceptance)
        heir._probe_seconds = self._probe_seconds
        return heir

    def choose(self, key: DraftKey, *, other_rows: int = 0) -> int:
        if key.source is DraftSource.MODEL and self.rest():
            return 0
        self._wake()
        self._probing = False
        expected = self._expected(key)
        seconds = [self._seconds(key, depth, other_rows) for depth in range(len(expected))]
        rate = self._rate.value or max(map(_per_second, expected, seconds))
        gains = [tokens - rate * spent for tokens, spent in zip(expected, seconds, strict=True)]
        depth = gains.index(max(gains))
        needed = rate * (seconds[1] - seconds[0]) if self._max else 0.0
        if depth == 0 and self._max and key.source is DraftSource.MODEL:
            self._probing = self._probe_seconds >= self._probe_cost(other_rows)
        self.reason = self._explained(key, depth, needed)
        hopeless = depth == 0 and not self._probing and self._acceptance.first(key) < FAR * needed
        if hopeless and key.source is DraftSource.MODEL:
            self._rest = REST
        return 1 if self._probing else depth

    def rest(self) -> bool:
        if self._rest:
            self._rest -= 1
            return True
        return False

    def note_nothing_found(self) -> None:
        self.reason = "no draft: nothing like it came before"

    def record(self, round_: Round) -> None:
        if self._rest and not round_.proposal.guesses:
            self._slept.append(round_)
        else:
            self._wake()
            self._learn(round_)

    def _wake(self) -> None:
        """Learn what went by; all of it was without drafts, so one round stands for all others."""
        slept, self._slept, self._rest = self._slept, [], 0
        if slept:
            for round_ in slept[:-1]:
                self._note_time(round_)
            self._learn(slept[-1])

    def _note_time(self, round_: Round) -> None:
        if round_.seconds > 0:
            self._rate.add(len(round_.emitted), round_.seconds + round_.draft_seconds)
            self._probe_seconds += PROBE_SHARE * round_.seconds
        self._lag += len(round_.emitted)

    def _learn(self, round_: Round) -> None:
        self._acceptance.observe(round_.proposal.guesses, round_.emitted)
        self._costs.record_draft(round_.proposal, round_.draft_seconds)
        if round_.seconds > 0:
            self._rate.add(len(round_.emitted), round_.seconds + round_.draft_seconds)
            self._costs.traversal.record(round_.rows, round_.seconds)
            self._settle(round_)
        asked = round_.proposal.source is DraftSource.MODEL
        accepted = len(round_.emitted) - 1
        # What was accepted is in the model's cache, but for the last of its drafts.
        self._lag = 1 + (accepted == len(round_.proposal.ids)) if asked else self._lag + 1 + accepted

    def _expected(self, key: DraftKey) -> list[float]:
        """Tokens of a round with 0 … max drafts."""
        reached = accumulate(self._acceptance.chances(key, self._max), mul)
        return list(accumulate(reached, initial=1.0))

    def _seconds(self, key: DraftKey, depth: int, other_rows: int) -> float:
        drafting = self._costs.draft_seconds(key.source, depth, self._lag)
        return self._costs.traversal.seconds(other_rows + 1 + depth) + drafting

    def _settle(self, round_: Round) -> None:
        """Time is saved up by every round; drafts of a model take what they cost and give what they won."""
        proposal, cost = round_.proposal, self._probe_cost(0)
        if self._probe_seconds == float("inf"):
            self._probe_seconds = FIRST_PROBES * cost
        self._probe_seconds += PROBE_SHARE * round_.seconds
        if proposal.source is DraftSource.MODEL:
            others = round_.rows - 1 - len(proposal.ids)
            self._probe_seconds += (len(round_.emitted) - 1) * self._costs.traversal.seconds(1)
            self._probe_seconds -= round_.draft_seconds + self._row_seconds(len(proposal.ids), others)
        self._probe_seconds = min(self._probe_seconds, SAVED_PROBES * cost)

    def _probe_cost(self, other_rows: int) -> float:
        """Seconds that one draft of a model adds to a round."""
        drafting = self._costs.draft_seconds(DraftSource.MODEL, 1, self._lag)
        return drafting + self._row_seconds(1, other_rows)

    def _row_seconds(self, depth: int, other_rows: int) -> float:
        """Seconds that `depth` rows add to a traversal, and no less than can be measured in its noise."""
        alone = self._costs.traversal.seconds(other_rows + 1)
        return max(MEASURABLE * alone, self._costs.traversal.seconds(other_rows + 1 + depth) - alone)

    def _explained(self, key: DraftKey, depth: int, needed: float) -> str:
        chance = self._acceptance.first(key)
        what = (
            f"after a match of {key.confidence} or more tokens"
            if key.source is DraftSource.NGRAM
            else "of the draft model"
        )
        if depth:
            return f"{_drafts(depth)}: {chance:.0%} of first drafts {what} hold"
        trying = ", one to try" if self._probing else ""
        return f"no draft{trying}: {chance:.0%} of first drafts {what} hold, {needed:.0%} would have to"


class _Rate:
    """Tokens per second of the last rounds; None before RATE_ROUNDS of them."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._rounds = 0

    @property
    def value(self) -> float | None:
        return self._tokens / self._seconds if self._rounds >= RATE_ROUNDS else None

    def add(self, tokens: int, seconds: float) -> None:
        self._tokens = RATE_MEMORY * self._tokens + tokens
        self._seconds = RATE_MEMORY * self._seconds + seconds
        self._rounds += 1


def _per_second(tokens: float, seconds: float) -> float:
    return tokens / seconds


def _drafts(depth: int) -> str:
    return "1 draft" if depth == 1 else f"{depth} drafts"
