"""What `ask` reports about its answers (pure): the document of `--json`, the tables of `--stats`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetchat.fleet.telemetry import (
    Answer,
    FinishReason,
    FleetSnapshot,
    Percentiles,
    Speculation,
    StageSnapshot,
)


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer and where it belongs: the number of its prompt and of its turn, both from 0."""

    prompt: int
    turn: int
    answer: Answer


def document(snapshot: FleetSnapshot, answers: Sequence[Answered]) -> dict[str, object]:
    """The document of `--json`. Figures of which nothing was measured are null."""
    return {
        "model": snapshot.model,
        "precision": snapshot.precision,
        "kv": snapshot.kv,
        "stages": [_stage(stage) for stage in snapshot.stages],
        "return_network_ms": _milliseconds(snapshot.return_network_ms)["p50"],
        "answers": [_answer(one) for one in answers],
    }


def _stage(stage: StageSnapshot) -> dict[str, object]:
    return {
        "index": stage.index,
        "address": stage.address,
        "layers": [stage.first_layer, stage.last_layer],
        "settings": stage.settings,
        "compute_ms": _milliseconds(stage.compute_ms),
        "queue_ms": _milliseconds(stage.queue_ms),
        "network_ms": _milliseconds(stage.network_ms),
    }


def _milliseconds(measured: Percentiles) -> dict[str, float | None]:
    if not measured.count:
        return {"p50": None, "p95": None}
    return {"p50": round(measured.p50, 3), "p95": round(measured.p95, 3)}


def _answer(one: Answered) -> dict[str, object]:
    answer = one.answer
    return {
        "prompt": one.prompt,
        "turn": one.turn,
        "text": answer.text,
        "token_ids": list(answer.token_ids),
        "finish_reason": answer.finish_reason.value,
        "seed": answer.seed,
        "prompt_tokens": answer.prompt_tokens,
        "prompt_tokens_cached": answer.prompt_tokens_cached,
        "completion_tokens": answer.completion_tokens,
        "ttft_ms": round(answer.ttft_ms, 3),
        "tokens_per_s": round(answer.tokens_per_s, 3),
        "speculation": _speculation(answer.speculation),
        "recoveries": [dict(recovery) for recovery in answer.recoveries],
    }


def _speculation(speculation: Speculation) -> dict[str, object]:
    return {
        "drafter": speculation.drafter,
        "rounds": speculation.rounds,
        "drafted": speculation.drafted,
        "accepted": speculation.accepted,
        "acceptance": speculation.acceptance,
        "depth_histogram": list(speculation.depth_histogram),
        "rollbacks": speculation.rollbacks,
        "cells_masked": list(speculation.cells_masked),
        "cells_live": list(speculation.cells_live),
        "cells_dead": list(speculation.cells_dead),
        "compactions": speculation.compactions,
    }


def statistics_lines(snapshot: FleetSnapshot, answers: Sequence[Answered]) -> list[str]:
    """The two tables of `--stats`, for people."""
    return [
        f"{snapshot.model}, precision {snapshot.precision}, KV engine {snapshot.kv}"
        + (f" ({snapshot.kv_reason})" if snapshot.kv_reason else ""),
        "",
        *_table([STAGE_HEADINGS, *map(_stage_row, snapshot.stages)]),
        f"return leg {_shown(snapshot.return_network_ms.p50, snapshot.return_network_ms.count)} ms",
        "",
        *_table([ANSWER_HEADINGS, *map(_answer_row, answers)]),
    ]


STAGE_HEADINGS = ("stage", "address", "layers", "compute ms p50", "p95", "queue ms p50", "network ms p50")
ANSWER_HEADINGS = (
    "prompt", "turn", "prompt tokens", "cached", "tokens", "tokens/s", "first token ms", "end", "seed",
)  # fmt: skip


def _stage_row(stage: StageSnapshot) -> tuple[str, ...]:
    return (
        str(stage.index),
        stage.address,
        f"{stage.first_layer}–{stage.last_layer}",
        _shown(stage.compute_ms.p50, stage.compute_ms.count),
        _shown(stage.compute_ms.p95, stage.compute_ms.count),
        _shown(stage.queue_ms.p50, stage.queue_ms.count),
        _shown(stage.network_ms.p50, stage.network_ms.count),
    )


def _answer_row(one: Answered) -> tuple[str, ...]:
    answer = one.answer
    return (
        str(one.prompt + 1),
        str(one.turn + 1),
        f"{answer.prompt_tokens:,}",
        f"{answer.prompt_tokens_cached:,}",
        f"{answer.completion_tokens:,}",
        f"{answer.tokens_per_s:.1f}",
        f"{answer.ttft_ms:.0f}",
        answer.finish_reason.value,
        str(answer.seed),
    )


def _shown(milliseconds: float, count: int) -> str:
    return f"{milliseconds:.2f}" if count else "–"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def finish_note(answer: Answer, *, context: int) -> str | None:
    """Why an answer is not whole, in words; None when the model ended it by itself."""
    match answer.finish_reason:
        case FinishReason.LENGTH:
            return f"the answer was cut after {_tokens(answer)} (--max-tokens)"
        case FinishReason.CONTEXT:
            return f"the answer was cut: the context of {context:,} tokens is full (--context)"
        case FinishReason.CANCELLED:
            return f"stopped after {_tokens(answer)}"
        case _:
            return None


def _tokens(answer: Answer) -> str:
    return "1 token" if answer.completion_tokens == 1 else f"{answer.completion_tokens:,} tokens"
