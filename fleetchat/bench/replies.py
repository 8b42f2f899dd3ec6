"""How fast replies came: tokens and times of both sides, counted alike (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetchat.bench.workloads import tokens_before_loop


@dataclass(frozen=True, slots=True)
class ReplyTime:
    """One reply up to its first loop. `seconds` go from the first token to the last that counts."""

    tokens: int
    ttft_ms: float
    seconds: float


def timed_reply(started: float, times: Sequence[float], token_ids: Sequence[int]) -> ReplyTime | None:
    """A reply whose tokens arrived at `times`; None when there was none. All times are of one clock."""
    counted = tokens_before_loop(token_ids)
    if counted == 0:
        return None
    return ReplyTime(counted, 1000 * (times[0] - started), times[counted - 1] - times[0])


def decode_rate(replies: Sequence[ReplyTime], concurrent: int = 1) -> float:
    """Tokens a second without the time to the first token, of `concurrent` sessions together.

    While all sessions are busy all the time, their rates add up: concurrent x (all tokens but the first
    of each reply) / (seconds of all replies). Raises ValueError when nothing was measured.
    """
    tokens = sum(reply.tokens - 1 for reply in replies)
    seconds = sum(reply.seconds for reply in replies)
    if tokens == 0 or seconds <= 0:
        raise ValueError("no reply had a second token")
    return concurrent * tokens / seconds
