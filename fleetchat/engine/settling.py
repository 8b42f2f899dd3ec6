"""Finding out which settings `fast` takes for a model on this machine: time the candidates, choose, record.

OpenVINO and the clock are behind `time_one`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from fleetchat.engine.fast_settings import DEFAULT, Choice, FastSettings, Timing, choose, explained
from fleetchat.engine.settings_record import Records, SettingsKey

_log = logging.getLogger(__name__)

TimeOne = Callable[[FastSettings], Timing]


def settle(
    key: SettingsKey,
    records: Records,
    possible: Sequence[FastSettings],
    time_one: TimeOne,
    on_measuring: Callable[[], None],
) -> Choice:
    """What the record says, else what is measured now; `on_measuring` is called before that.

    `possible` ends with the default. A candidate that fails is left out; what the default raises is raised,
    for then the shard cannot be used.
    """
    recorded = records.find(key, possible)
    if recorded is not None:
        return recorded
    on_measuring()
    deadly = records.deadly(key)
    timings: dict[FastSettings, Timing] = {}
    for settings in possible:
        if settings not in deadly:
            _try(settings, key, records, time_one, timings)
    best = choose(timings)
    if best != DEFAULT:  # a second opinion, as something else may have run meanwhile
        for settings in (DEFAULT, best):
            _try(settings, key, records, time_one, timings)
        best = choose(timings)
    choice = Choice(best, _reason(best, timings, [one for one in possible if one in deadly]))
    beside = records.find(key, possible)
    if beside is not None:  # another stage of the chain was done first: all take the same
        return beside
    records.keep(key, choice, timings)
    return choice


def _try(
    settings: FastSettings,
    key: SettingsKey,
    records: Records,
    time_one: TimeOne,
    timings: dict[FastSettings, Timing],
) -> None:
    """Time one candidate, and keep the faster times when it was timed before."""
    is_risky = settings.compute != "f32"
    try:
        if is_risky:
            records.begin(key, settings)
        timing = time_one(settings)
        timings[settings] = timing.or_faster(timings.get(settings, timing))
    except Exception as error:  # whatever OpenVINO raises
        if settings == DEFAULT:
            raise
        timings.pop(settings, None)
        _log.info("%s is left out: %s", settings, error)
    if is_risky:
        records.ended(key)


def _reason(best: FastSettings, timings: dict[FastSettings, Timing], deadly: Sequence[FastSettings]) -> str:
    left_out = [f"{settings} once ended the process" for settings in deadly]
    return "; ".join([explained(best, timings), *left_out])
