"""openvino_genai on the same IR, cores and precision: what the chain is measured against.

Runs in a process of its own, so that it can be pinned and so that its memory is its own. One JSON
object a line on stdin (a command), one on stdout (its answer)::

    {"load": {"folder": …, "backend": "SDPA" | "PA", "config": {…}, "cores": [0]}} -> {"ready": true}
    {"generate": {"token_ids": […], "max_tokens": N, "stop_ids": […]}}
        -> {"token_ids": […], "ttft_ms": …, "seconds": …}   seconds: first token to last
    {"batch": {"requests": [[…], …], "max_tokens": N, "stop_ids": […]}}
        -> {"token_ids": [[…], …], "seconds": …}            seconds: all of it, prefill included
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import openvino
import openvino_genai

KV_CACHE_GB = 2  # for the paged backend; 8 sessions of 2,048 tokens need less


class Baseline:
    """One loaded pipeline."""

    def __init__(self, folder: str, backend: str, config: dict[str, Any], cores: list[int]) -> None:
        """`backend` is SDPA, PA (both one request at a time) or CB (continuous batching)."""
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        self._batching = backend == "CB"
        if self._batching:
            scheduler = openvino_genai.SchedulerConfig()
            scheduler.cache_size = KV_CACHE_GB
            scheduler.max_num_seqs = 64
            self._pipeline: Any = openvino_genai.ContinuousBatchingPipeline(
                folder, scheduler, "CPU", config, {}
            )
        else:
            self._pipeline = openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND=backend, **config)

    def generate(self, token_ids: list[int], max_tokens: int, stop_ids: list[int]) -> dict[str, Any]:
        """One greedy reply; times are taken where each token arrives."""
        times: list[float] = []

        def note(token: int | list[int]) -> bool:
            times.extend([time.perf_counter()] * (len(token) if isinstance(token, list) else 1))
            return False

        started = time.perf_counter()
        result = self._pipeline.generate(tokenized(token_ids), greedy(max_tokens, stop_ids), TokenTimes(note))
        tokens = without_stop(list(result.tokens[0]), stop_ids)
        kept = times[: max(1, len(tokens))]
        return {
            "token_ids": tokens,
            "ttft_ms": 1000 * (kept[0] - started),
            "seconds": kept[-1] - kept[0],
        }

    def batch(self, requests: list[list[int]], max_tokens: int, stop_ids: list[int]) -> dict[str, Any]:
        """All requests at once through continuous batching."""
        config = greedy(max_tokens, stop_ids)
        tensors = [openvino.Tensor(np.asarray([ids], dtype=np.int64)) for ids in requests]
        started = time.perf_counter()
        results = self._pipeline.generate(tensors, [config] * len(requests))
        seconds = time.perf_counter() - started
        tokens = [without_stop(list(result.m_generation_ids[0]), stop_ids) for result in results]
        return {"token_ids": tokens, "seconds": seconds}


class TokenTimes(openvino_genai.StreamerBase):  # type: ignore[misc]  # no type information
    """Calls back with every token, without decoding it."""

    def __init__(self, on_token: Any) -> None:
        super().__init__()
        self._on_token = on_token

    def write(self, token: int | list[int]) -> Any:
        self._on_token(token)
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Nothing is buffered."""


def tokenized(token_ids: list[int]) -> Any:
    ids = np.asarray([token_ids], dtype=np.int64)
    return openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))


def greedy(max_tokens: int, stop_ids: list[int]) -> Any:
    config = openvino_genai.GenerationConfig()
    config.do_sample = False
    config.max_new_tokens = max_tokens
    config.stop_token_ids = set(stop_ids)
    return config


def without_stop(token_ids: list[int], stop_ids: list[int]) -> list[int]:
    return token_ids[:-1] if token_ids and token_ids[-1] in stop_ids else token_ids


def main() -> None:
    """Serve commands until end of file."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what the library prints must not look like an answer
    baseline: Baseline | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if "load" in command:
            baseline = Baseline(**command["load"])
            answer: dict[str, Any] = {"ready": True}
        elif baseline is None:
            answer = {"error": "load first"}
        elif "batch" in command:
            answer = baseline.batch(**command["batch"])
        else:
            answer = baseline.generate(**command["generate"])
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
