"""openvino_genai on the same IR, cores and precision: what the chain is measured against.

Runs in a process of its own, so that it can be pinned and so that its memory is its own. One JSON
object a line on stdin (a command), one on stdout (its answer)::

    {"load": {"folder": …, "backend": "SDPA" | "PA" | "CB", "config": {…}, "cores": [0]}} -> {"ready": true}
    {"replies": {"prompts": [[…], …], "seconds": S, "max_tokens": N, "stop_ids": […], "most": M or null}}
        -> {"replies": [{"started": …, "times": […], "token_ids": […]}, …]}   times on this process's clock
    {"batch": {"prompts": [[…], …], "max_tokens": N, "stop_ids": […]}}
        -> {"token_ids": [[…], …], "seconds": …}            seconds: all of it, prefill included
    anything that fails -> {"error": text}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import openvino
import openvino_genai

from fleetchat.bench.workloads import LoopWatch
from fleetchat.peer.embedded import pin_to

KV_CACHE_GB = 2  # for the paged backends; 8 sessions of 2,048 tokens need less


class Baseline:
    """One loaded pipeline."""

    def __init__(self, folder: str, backend: str, config: dict[str, Any], cores: list[int]) -> None:
        """`backend` is SDPA, PA (both one request at a time) or CB (continuous batching).

        The cores come first: moved after it was loaded, a pipeline computes where it was loaded.
        """
        pin_to(frozenset(cores))
        if backend == "CB":
            scheduler = openvino_genai.SchedulerConfig()
            scheduler.cache_size = KV_CACHE_GB
            scheduler.max_num_seqs = 64
            self._pipeline: Any = openvino_genai.ContinuousBatchingPipeline(
                folder, scheduler, "CPU", config, {}
            )
        else:
            self._pipeline = openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND=backend, **config)

    def replies(
        self,
        prompts: list[list[int]],
        seconds: float,
        max_tokens: int,
        stop_ids: list[int],
        most: int | None = None,
    ) -> dict[str, Any]:
        """Greedy replies to the prompts in turn until the time is over, or `most`; a loop ends a reply."""
        deadline = time.perf_counter() + seconds
        config = greedy(max_tokens, stop_ids)
        done: list[dict[str, Any]] = []
        while time.perf_counter() < deadline and (most is None or len(done) < most):
            done.append(self._reply(prompts[len(done) % len(prompts)], deadline, config))
        return {"replies": done}

    def batch(self, prompts: list[list[int]], max_tokens: int, stop_ids: list[int]) -> dict[str, Any]:
        """All requests at once through continuous batching."""
        config = greedy(max_tokens, stop_ids)
        tensors = [openvino.Tensor(np.asarray([ids], dtype=np.int64)) for ids in prompts]
        started = time.perf_counter()
        results = self._pipeline.generate(tensors, [config] * len(prompts))
        seconds = time.perf_counter() - started
        tokens = [without_stop(list(result.m_generation_ids[0]), stop_ids) for result in results]
        return {"token_ids": tokens, "seconds": seconds}

    def _reply(self, prompt: list[int], deadline: float, config: Any) -> dict[str, Any]:
        times: list[float] = []
        token_ids: list[int] = []
        watch = LoopWatch()

        def note(token_id: int) -> bool:
            now = time.perf_counter()
            if token_id not in config.stop_token_ids:
                times.append(now)
                token_ids.append(token_id)
            return now > deadline or watch.push(token_id)

        started = time.perf_counter()
        self._pipeline.generate(tokenized(prompt), config, TokenTimes(note))
        return {"started": started, "times": times, "token_ids": token_ids}


class TokenTimes(openvino_genai.StreamerBase):  # type: ignore[misc]  # no type information
    """Calls back with every token, without decoding it; the reply ends when the callback answers True."""

    def __init__(self, on_token: Callable[[int], bool]) -> None:
        super().__init__()
        self._on_token = on_token

    def write(self, token: int | list[int]) -> Any:
        ends = [self._on_token(one) for one in (token if isinstance(token, list) else [token])]
        status = openvino_genai.StreamingStatus
        return status.STOP if any(ends) else status.RUNNING

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


def answer(baseline: Baseline | None, command: dict[str, Any]) -> tuple[Baseline | None, dict[str, Any]]:
    """Carry out one command."""
    if "load" in command:
        return Baseline(**command["load"]), {"ready": True}
    if baseline is None:
        return None, {"error": "load first"}
    if "batch" in command:
        return baseline, baseline.batch(**command["batch"])
    return baseline, baseline.replies(**command["replies"])


def main() -> None:
    """Serve commands until end of file."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what the library prints must not look like an answer
    baseline: Baseline | None = None
    for line in sys.stdin:
        try:
            baseline, said = answer(baseline, json.loads(line))
        except (RuntimeError, TypeError, ValueError, KeyError) as error:
            said = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        answers.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
