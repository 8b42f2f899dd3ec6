from __future__ import annotations

import dataclasses
import json

import pytest

from fleetchat.cli.ask_report import Answered, document, finish_note, statistics_lines
from fleetchat.fleet.telemetry import (
    Answer,
    FinishReason,
    FleetSnapshot,
    Percentiles,
    Speculation,
    StageSnapshot,
    StageState,
)


def stage(index: int, first: int, last: int, **changes: object) -> StageSnapshot:
    plain = StageSnapshot(
        index=index,
        address=f"127.0.0.1:{4000 + index}",
        first_layer=first,
        last_layer=last,
        state=StageState.READY,
        detail="",
        engine="masked",
        device="CPU",
        compute_ms=Percentiles(4.25, 6.5, 30),
        queue_ms=Percentiles(0.0123, 0.0456, 30),
        network_ms=Percentiles(0.0514, 0.09, 3),
        cells_granted=1000,
        cells_live=30,
        cells_dead=2,
        memory_resident=0,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


SNAPSHOT = FleetSnapshot(
    model="SmolLM2 135M Instruct",
    precision="exact",
    kv="masked",
    epoch=1,
    stages=(stage(0, 0, 17, settings="f32 (measured)"), stage(1, 18, 29, network_ms=Percentiles())),
    return_network_ms=Percentiles(0.0611, 0.08, 3),
    sessions=(),
    tokens_per_s=0.0,
)
PARIS = Answer(
    text="Paris. ☕",
    token_ids=(504, 28),
    finish_reason=FinishReason.STOP,
    seed=7,
    prompt_tokens=37,
    prompt_tokens_cached=0,
    ttft_ms=81.23456,
    tokens_per_s=44.56789,
    speculation=Speculation(
        rounds=3, rollbacks=1, cells_masked=(1, 1), cells_live=(30, 30), cells_dead=(2, 2)
    ),
)
SECOND = dataclasses.replace(PARIS, finish_reason=FinishReason.LENGTH, seed=8, prompt_tokens_cached=38)
ANSWERS = [Answered(0, 0, PARIS), Answered(0, 1, SECOND)]


def test_the_document_is_that_of_the_design() -> None:
    assert document(SNAPSHOT, ANSWERS[:1]) == {
        "model": "SmolLM2 135M Instruct",
        "precision": "exact",
        "kv": "masked",
        "stages": [
            {
                "index": 0,
                "address": "127.0.0.1:4000",
                "layers": [0, 17],
                "settings": "f32 (measured)",
                "compute_ms": {"p50": 4.25, "p95": 6.5},
                "queue_ms": {"p50": 0.012, "p95": 0.046},
                "network_ms": {"p50": 0.051, "p95": 0.09},
            },
            {
                "index": 1,
                "address": "127.0.0.1:4001",
                "layers": [18, 29],
                "settings": "",
                "compute_ms": {"p50": 4.25, "p95": 6.5},
                "queue_ms": {"p50": 0.012, "p95": 0.046},
                "network_ms": {"p50": None, "p95": None},
            },
        ],
        "return_network_ms": 0.061,
        "answers": [
            {
                "prompt": 0,
                "turn": 0,
                "text": "Paris. ☕",
                "token_ids": [504, 28],
                "finish_reason": "stop",
                "seed": 7,
                "prompt_tokens": 37,
                "prompt_tokens_cached": 0,
                "completion_tokens": 2,
                "ttft_ms": 81.235,
                "tokens_per_s": 44.568,
                "speculation": {
                    "drafter": "none",
                    "rounds": 3,
                    "drafted": 0,
                    "accepted": 0,
                    "acceptance": None,
                    "depth_histogram": [],
                    "rollbacks": 1,
                    "cells_masked": [1, 1],
                    "cells_live": [30, 30],
                    "cells_dead": [2, 2],
                    "compactions": 0,
                },
                "recoveries": [],
            }
        ],
    }


def test_the_document_is_plain_json_and_names_every_turn() -> None:
    written = json.loads(json.dumps(document(SNAPSHOT, ANSWERS)))
    assert [(answer["prompt"], answer["turn"], answer["seed"]) for answer in written["answers"]] == [
        (0, 0, 7),
        (0, 1, 8),
    ]


def test_the_tables_line_up() -> None:
    assert statistics_lines(SNAPSHOT, ANSWERS) == [
        "SmolLM2 135M Instruct, precision exact, KV engine masked",
        "",
        "stage         address  layers  compute ms p50   p95  queue ms p50  network ms p50",
        "    0  127.0.0.1:4000    0–17            4.25  6.50          0.01            0.05",
        "    1  127.0.0.1:4001   18–29            4.25  6.50          0.01               –",
        "return leg 0.06 ms",
        "",
        "prompt  turn  prompt tokens  cached  tokens  tokens/s  first token ms     end  seed",
        "     1     1             37       0       2      44.6              81    stop     7",
        "     1     2             37      38       2      44.6              81  length     8",
    ]


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        (FinishReason.STOP, None),
        (FinishReason.ERROR, None),
        (FinishReason.LENGTH, "the answer was cut after 2 tokens (--max-tokens)"),
        (FinishReason.CONTEXT, "the answer was cut: the context of 2,048 tokens is full (--context)"),
        (FinishReason.CANCELLED, "stopped after 2 tokens"),
    ],
)
def test_an_answer_that_is_not_whole_says_why(reason: FinishReason, note: str | None) -> None:
    assert finish_note(dataclasses.replace(PARIS, finish_reason=reason), context=2048) == note
