"""`parity.top1`: how often `fast` prefers another token than `exact`, cut and uncut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetchat.bench.forcing import ChainModel, Forced, WholeModel, forced_tops, greedy_reply
from fleetchat.bench.pairs import Row
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject
from fleetchat.bench.workloads import WORKLOADS, plain_text, tokens_before_loop

POSITIONS = 5000
QUICK_POSITIONS = 400
DECODED_ROWS = 1  # at a time, as the chain decodes
QUICK_ROWS = 8
PIECE = 256  # ids of plain text that are read in one session
REPLY = 256  # most ids of a reply


@dataclass(frozen=True, slots=True)
class ForcedText:
    """Ids, and the likeliest id behind each of them according to the exact model."""

    token_ids: list[int]
    prefill: int
    tops: list[int]


@dataclass(frozen=True, slots=True)
class Differences:
    """Positions in all, and those where the chain, the whole model, or only one of them differs."""

    positions: int
    chain: int
    whole: int
    chain_only: int
    whole_only: int

    @property
    def two_standard_errors(self) -> float:
        """Of the difference of the two shares, which come from the same positions."""
        either, surplus = self.chain_only + self.whole_only, self.chain_only - self.whole_only
        return 2 * math.sqrt(max(0.0, either - surplus**2 / self.positions)) / self.positions


def measure_top1(setting: Setting, subject: Subject) -> tuple[Row, str]:
    """The row, and what it means in words."""
    quick = setting.effort.quick
    exact = WholeModel(subject, "exact")
    chain, whole = ChainModel(subject, "fast"), WholeModel(subject, "fast")
    texts, positions = [], 0
    for text in exact_texts(subject, exact, replies=not quick):
        texts.append(text)
        positions += len(text.tops)
        setting.note(f"top tokens in exact: {positions} positions")
        if positions >= (QUICK_POSITIONS if quick else POSITIONS):
            break
    rows = QUICK_ROWS if quick else DECODED_ROWS
    found = compare(setting, texts, chain, whole, rows)
    return top1_row(found), describe(found, len(subject.manifest.stages), rows, replies=not quick)


def exact_texts(subject: Subject, exact: Forced, *, replies: bool) -> Iterator[ForcedText]:
    """Plain English in pieces, then prompts, with the model's own greedy replies when `replies`."""
    ids = subject.chat_format.tokenizer.encode(plain_text(), specials=False)
    for start in range(0, len(ids), PIECE):
        piece = ids[start : start + PIECE]
        yield ForcedText(piece, 1, forced_tops(exact, piece, prefill=len(piece), rows=1))
    for prompts in zip(*(subject.workload_ids(workload) for workload in WORKLOADS), strict=False):
        for prompt in prompts:
            if not replies:
                yield ForcedText(list(prompt), 1, forced_tops(exact, prompt, prefill=len(prompt), rows=1))
                continue
            told, tops = greedy_reply(exact, prompt, most=REPLY, stop_ids=subject.stop_ids)
            end = len(prompt) + tokens_before_loop(told[len(prompt) :])
            yield ForcedText(told[:end], len(prompt), tops[:end])


def compare(
    setting: Setting, texts: Sequence[ForcedText], chain: Forced, whole: Forced, rows: int
) -> Differences:
    """Force the texts on both."""
    counts = {"positions": 0, "chain": 0, "whole": 0, "chain_only": 0, "whole_only": 0}
    for number, text in enumerate(texts, start=1):
        by_chain = forced_tops(chain, text.token_ids, prefill=text.prefill, rows=rows)
        by_whole = forced_tops(whole, text.token_ids, prefill=text.prefill, rows=rows)
        for top, ours, theirs in zip(text.tops, by_chain, by_whole, strict=True):
            counts["positions"] += 1
            counts["chain"] += ours != top
            counts["whole"] += theirs != top
            counts["chain_only"] += ours != top and theirs == top
            counts["whole_only"] += ours == top and theirs != top
        setting.note(f"top tokens in fast: text {number} of {len(texts)}")
    return Differences(**counts)


def top1_row(found: Differences) -> Row:
    """Shares of positions; the range of the ratio is two standard errors of the difference."""
    chain, whole = found.chain / found.positions, found.whole / found.positions
    if not whole:
        return Row("parity.top1", chain, "of positions", whole, pairs=found.positions)
    error = found.two_standard_errors
    return Row(
        id="parity.top1",
        value=chain,
        unit="of positions",
        baseline=whole,
        ratio=chain / whole,
        ratio_min=(chain - error) / whole,
        ratio_max=(chain + error) / whole,
        pairs=found.positions,
    )


def describe(found: Differences, stages: int, rows: int, *, replies: bool) -> str:
    texts = (
        "plain English, prompts and the model's own greedy replies"
        if replies
        else "plain English and prompts"
    )
    return (
        f"parity.top1: {found.positions:,} positions of {texts} under teacher forcing, "
        f"{rows} row{'s' if rows > 1 else ''} at a time on both sides; the top token differs from exact at "
        f"{found.chain} with {stages} stages and at {found.whole} uncut; two standard errors of the "
        f"difference are {found.two_standard_errors * found.positions:.0f}; the range is that of the ratio"
    )
