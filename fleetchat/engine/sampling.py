"""From logits to a token, keyed by position. Pure numpy.

The token at logical position p of a session is the arg max over the kept ids i of

    logit_i / T + g(seed, p, i),    g = -ln(-ln u),    u = (h + 0.5) / 2^53

with h a 53-bit hash of (seed, p, i). By the Gumbel-max trick its distribution is the softmax over the
kept ids. As the noise depends on nothing but seed, position and id, the text for a seed depends neither
on speculation nor on batching, and tiny differences of the logits between two ways of computing
them seldom change a token (research/openvino.md section 11: 0 to 2e-5 of the tokens).

Order: repetition penalty, temperature, top-k, top-p. All arithmetic is float64.

The hash is SplitMix64 (Steele, Lea, Flood 2014), used as a counter-based generator three times over:
key = output number p of the stream seeded by the first output of the stream seeded by `seed`, and
h = the upper 53 bits of output number i of the stream seeded by that key. All numbers count from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetchat.errors import SliceFailed
from fleetchat.wire.frames import Draw, FaultCode

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64's increment
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # and its two multipliers
_LARGEST_UNIFORM = (
    1.0 - 2.0**-53
)  # (h + 0.5) / 2^53 rounds to 1 for the largest h, and ln(-ln 1) has no value
_CHUNK = 8192  # ids hashed at once: 64 KiB arrays stay in the cache, larger ones cost page faults
_COLUMN = 64

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def draw_token(
    logits: NDArray[np.floating],
    position: int,
    settings: Draw,
    reply_ids: Sequence[int] | NDArray[np.integer],
) -> int:
    """The token at logical `position`.

    `logits` is [vocabulary]; `reply_ids` are the ids at positions `settings.reply_start` … position - 1
    (only read when there is a penalty). Raises SliceFailed("non-finite") when a logit is no finite number.
    """
    likeliest = int(logits.argmax())
    _require_finite(logits, likeliest, position)
    if settings.penalty != 1.0:
        logits = penalised(logits, reply_ids, settings.penalty)
        likeliest = int(logits.argmax())
    if settings.temperature <= 0.0:
        return likeliest
    ids, scaled = kept(logits, settings.temperature, settings.top_k, settings.top_p)
    if len(ids) == 1:
        return int(ids[0])
    scaled += gumbel(settings.seed, position, ids)
    return int(ids[scaled.argmax()])


def penalised(
    logits: NDArray[np.floating], reply_ids: Sequence[int] | NDArray[np.integer], penalty: float
) -> Floats:
    """A float64 copy; of the distinct `reply_ids`, positive logits are divided, negative ones multiplied."""
    result = logits.astype(np.float64)
    seen = np.unique(np.asarray(reply_ids, dtype=np.int64))
    chosen = result[seen]
    result[seen] = np.where(chosen > 0, chosen / penalty, chosen * penalty)
    return result


def kept(logits: NDArray[np.floating], temperature: float, top_k: int, top_p: float) -> tuple[Ids, Floats]:
    """The ids that may be drawn, ascending, and (logit - largest logit) / T of each.

    The largest logit is taken off first: that changes no draw, and a tiny T overflows to no NaN.
    """
    ids = _largest(logits, top_k) if 0 < top_k < len(logits) else None
    chosen = logits if ids is None else logits[ids]
    if top_p < 1.0:
        inside = _nucleus(chosen, temperature, top_p)
        ids, chosen = inside if ids is None else ids[inside], chosen[inside]
    return np.arange(len(logits)) if ids is None else ids, _scaled(chosen, logits.max(), temperature)


def gumbel(seed: int, position: int, ids: Ids) -> Floats:
    """Standard Gumbel noise for each id, float64."""
    noise = np.empty(len(ids), dtype=np.float64)
    for start in range(0, len(ids), _CHUNK):
        uniform = noise[start : start + _CHUNK]
        uniform[:] = hashed(seed, position, ids[start : start + _CHUNK])
        uniform += 0.5
        uniform *= 2.0**-53
        np.minimum(uniform, _LARGEST_UNIFORM, out=uniform)
        np.log(uniform, out=uniform)
        np.negative(uniform, out=uniform)
        np.log(uniform, out=uniform)
    return np.negative(noise, out=noise)


def hashed(seed: int, position: int, ids: Ids) -> NDArray[np.uint64]:
    """The 53-bit hash of (seed, position, id) for each id. `seed` is taken modulo 2^64."""
    key = _output(_output(seed & _MASK, 0), position)
    mixed = ids.astype(np.uint64)
    mixed += np.uint64(1)
    mixed *= np.uint64(_GOLDEN)
    mixed += np.uint64(key)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(_FIRST)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(31)
    mixed >>= np.uint64(11)
    return mixed


def _output(state: int, number: int) -> int:
    """Output `number` (from 0) of the SplitMix64 stream seeded by `state`."""
    mixed = (state + (number + 1) * _GOLDEN) & _MASK
    mixed = (mixed ^ (mixed >> 30)) * _FIRST & _MASK
    mixed = (mixed ^ (mixed >> 27)) * _SECOND & _MASK
    return mixed ^ (mixed >> 31)


def _require_finite(logits: NDArray[np.floating], likeliest: int, position: int) -> None:
    """One more pass, without a temporary: the arg max of values with a NaN is the NaN."""
    if not (math.isfinite(logits[likeliest]) and math.isfinite(logits.min())):
        raise SliceFailed(
            FaultCode.NON_FINITE,
            f"the logits for position {position} are not finite",
            hint="build the shards again, or run in --precision exact",
        )


def _scaled(logits: NDArray[np.floating], largest: np.floating, temperature: float) -> Floats:
    scaled: Floats = np.subtract(logits, largest, dtype=np.float64)
    with np.errstate(over="ignore"):  # a tiny T sends all but the largest to -inf, which is right
        scaled /= temperature
    return scaled


def _largest(values: NDArray[np.floating], count: int) -> Ids:
    """Ascending indexes of the `count` largest values; ties go to the lower index."""
    candidates = _candidates(values, count)
    chosen = values[candidates]
    bound = np.partition(chosen, len(chosen) - count)[len(chosen) - count]
    return candidates[_down_to(chosen, bound, count)]


def _down_to(values: NDArray[np.floating], bound: np.floating, count: int) -> Ids:
    """Ascending indexes of the `count` largest values, the least of which is `bound`."""
    chosen = np.flatnonzero(values >= bound)
    surplus = len(chosen) - count
    if surplus == 0:
        return chosen
    ties = np.flatnonzero(values[chosen] == bound)
    return np.delete(chosen, ties[-surplus:])


def _candidates(values: NDArray[np.floating], count: int) -> Ids:
    """Ascending indexes that hold the `count` largest values and mostly few others.

    The values are dealt into columns; `count` columns have a greatest value of at least the
    count-th greatest of them, so that is a lower bound of what is looked for.
    """
    columns = len(values) // _COLUMN
    if columns <= count:
        return np.arange(len(values))
    greatest = values[: columns * _COLUMN].reshape(_COLUMN, columns).max(axis=0)
    lower_bound = np.partition(greatest, columns - count)[columns - count]
    return np.flatnonzero(values >= lower_bound)


def _nucleus(logits: NDArray[np.floating], temperature: float, top_p: float) -> Ids:
    """Ascending indexes of the fewest largest logits whose softmax mass reaches `top_p`; at least one.

    Only weights above a floor are sorted: first a high floor, whose mass mostly is enough already, at
    last one below which no more than half of 1 - top_p can lie. The exponential of the whole row is taken
    in place: a second array of that size would cost more in page faults than in arithmetic.
    """
    largest = logits.max()
    weights = _scaled(logits, largest, temperature)
    np.exp(weights, out=weights)
    total = weights.sum()
    wanted = top_p * total
    sound = 0.5 * (1.0 - top_p) * total / len(weights)
    for floor in (3e-2, 1e-3, sound):
        candidates = np.flatnonzero(weights >= floor)
        if floor == sound or weights[candidates].sum() > wanted * (1 + 1e-9):
            break
    # The logits are sorted, not the weights: two logits may share a rounded weight.
    chosen = logits[candidates]
    ascending = np.sort(chosen)
    mass = np.cumsum(np.exp(_scaled(ascending, largest, temperature))[::-1])
    count = min(int(np.searchsorted(mass, wanted)) + 1, len(chosen))
    return candidates[_down_to(chosen, ascending[-count], count)]
