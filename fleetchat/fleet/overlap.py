"""How many batches share the chain: tried out, not believed (pure).

The batch former keeps one batch for each stage in the chain, so that all stages work at once. Where slices
share a pass, fewer and larger batches may bring more: reading the weights costs nearly the same for two
sessions as for one, and stages on one machine compete for its memory and cores when they work at once. On
machines of their own they do not. What is faster is therefore measured: a window as it is, one with another
number of batches, one as it is again. The other number wins when it beats both.

A comparison costs one window at the other's speed, and at most 2 % of the time is spent in such windows.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from fleetchat.fleet.batching import ChainLimits, Load, Pace, batches_wanted

WINDOW = 0.25  # seconds of a measurement
LEAST_BATCHES = 4  # that come back in it
SETTLING = 2  # batches for each in the chain, which pass before a window begins
BETTER = 1.03  # times as fast: less is noise
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two comparisons; doubled while nothing changes
SHARE = 0.02  # of the time may be spent in trying what turns out to be slower
KEPT = 64  # loads whose choice is remembered, least recently used first


@dataclass(slots=True)
class _Choice:
    """Of one load. `rates` are those of the windows under way: as it is, the other, as it is again."""

    now: int
    others: list[int]  # to be tried in turn
    rest_until: float
    pause: float = FIRST_PAUSE
    rates: list[float] = field(default_factory=list)
    window_ended: float = 0.0
    tried_for: float = 0.0  # seconds, the time of settling included

    @property
    def trying(self) -> int:
        return self.others[0] if len(self.rates) == 1 and self.others else self.now


class OverlapKeeper:
    """A load is (streaming sessions, batches that the former wants); each has its own choice."""

    def __init__(self) -> None:
        self._choices: OrderedDict[tuple[int, int], _Choice] = OrderedDict()
        self._load: tuple[int, int] | None = None
        self._to_settle = 0
        self._began = 0.0  # of the window
        self._batches = 0
        self._tokens = 0.0

    def capped(self, load: Load, limits: ChainLimits, pace: Pace) -> Load:
        """`load` with the number of batches that is best for it, or that is being tried."""
        if limits.places == 1 or load.streaming < 2 or load.prefilling:
            return load
        wanted = batches_wanted(limits, load, pace)
        choice = self._choices.get((load.streaming, wanted))
        return load if choice is None else replace(load, most=choice.trying)

    def note(self, now: float, load: Load, limits: ChainLimits, pace: Pace, tokens: float | None) -> None:
        """A batch came back at `now` (seconds) with so many tokens, under this load.

        None: it tells nothing, because a prefill was in the chain, or something was not computed.
        """
        if limits.places == 1:
            return
        wanted = batches_wanted(limits, replace(load, most=0), pace)
        if load.streaming < 2 or wanted < 2 or load.prefilling or tokens is None:
            self._load = None  # the window under way tells nothing
            return
        key = (load.streaming, wanted)
        choice = self._chosen(key, now)
        if key != self._load:
            self._load = key
            choice.rates.clear()
            self._settle(choice)
        if now < choice.rest_until:
            return
        if self._to_settle > 0:
            self._to_settle -= 1
            self._began, self._batches, self._tokens = now, 0, 0.0
            return
        self._batches += 1
        self._tokens += tokens
        if self._batches >= LEAST_BATCHES and now - self._began >= WINDOW:
            self._end_window(choice, now)

    def _chosen(self, key: tuple[int, int], now: float) -> _Choice:
        choice = self._choices.get(key)
        if choice is None:
            wanted = key[1]
            others = sorted({1, math.ceil(wanted / 2)} - {wanted}, reverse=True)
            choice = self._choices[key] = _Choice(wanted, others, now + FIRST_PAUSE)
            if len(self._choices) > KEPT:
                self._choices.popitem(last=False)
        self._choices.move_to_end(key)
        return choice

    def _settle(self, choice: _Choice) -> None:
        self._to_settle = SETTLING * max(choice.now, choice.trying)

    def _end_window(self, choice: _Choice, now: float) -> None:
        choice.rates.append(self._tokens / (now - self._began))
        if len(choice.rates) == 2:
            choice.tried_for = now - choice.window_ended
        choice.window_ended = now
        if len(choice.rates) == 3:
            before, other, after = choice.rates
            choice.rates = []
            self._judge(choice, now, wins=other > BETTER * max(before, after))
        self._settle(choice)

    @staticmethod
    def _judge(choice: _Choice, now: float, *, wins: bool) -> None:
        tried = choice.others.pop(0)
        if wins:
            choice.others.append(choice.now)
            choice.now, choice.pause = tried, FIRST_PAUSE
        else:
            choice.others.append(tried)
            choice.pause = min(2 * choice.pause, LONGEST_PAUSE)
        choice.rest_until = now + max(choice.pause, 0.0 if wins else choice.tried_for / SHARE)
