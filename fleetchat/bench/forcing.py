"""Models under teacher forcing: given ids in, the likeliest next id behind every one of them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from fleetchat.bench.stage_engine import feed, key_of, load_stage
from fleetchat.bench.subject import Subject
from fleetchat.engine.precision import Precision, openvino_config, wire_dtype

SESSION = 1


class Forced(Protocol):
    """One text at a time; `tops` appends rows to it."""

    def begin(self) -> None: ...

    def tops(self, token_ids: Sequence[int]) -> NDArray[np.int64]: ...


class WholeModel:
    """The uncut model, one thread, in this process."""

    def __init__(self, subject: Subject, precision: str) -> None:
        config = openvino_config(precision, 1, fast=subject.fast)
        self._compiled = ov.Core().compile_model(str(subject.whole_xml), "CPU", config)
        self._inputs = {port.get_any_name() for port in self._compiled.inputs}
        self._request = self._compiled.create_infer_request()
        self._length = 0

    def begin(self) -> None:
        """Forget the text so far."""
        self._request.reset_state()
        self._length = 0

    def tops(self, token_ids: Sequence[int]) -> NDArray[np.int64]:
        """Append rows; the likeliest next id behind each of them."""
        rows = len(token_ids)
        offered = {
            "input_ids": np.array([token_ids], dtype=np.int64),
            "attention_mask": np.ones((1, self._length + rows), dtype=np.int64),
            "position_ids": np.arange(self._length, self._length + rows)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        self._length += rows
        self._request.infer({name: offered[name] for name in self._inputs}, share_inputs=True)
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data
        return np.asarray(logits[0].argmax(axis=-1), dtype=np.int64)


class ChainModel:
    """The stages of a build one after the other in this process, with the hand-over of the wire."""

    def __init__(self, subject: Subject, precision: str) -> None:
        count = len(subject.manifest.stages)
        self._engines = [load_stage(subject, index, precision) for index in range(count)]
        largest = subject.manifest.self_check.largest_activation
        self._wire = wire_dtype(Precision(precision), largest).numpy
        self._length = 0

    def begin(self) -> None:
        """Forget the text so far."""
        for engine in self._engines:
            engine.forget(key_of(SESSION))
        self._length = 0

    def tops(self, token_ids: Sequence[int]) -> NDArray[np.int64]:
        """Append rows; the likeliest next id behind each of them."""
        hidden: NDArray[np.floating] | None = None
        for engine in self._engines:
            rows = feed(engine, SESSION, self._length, token_ids, hidden, logit_rows=len(token_ids))
            hidden = rows.astype(self._wire)
        self._length += len(token_ids)
        return np.asarray(rows.argmax(axis=-1), dtype=np.int64)


def forced_tops(model: Forced, token_ids: Sequence[int], *, prefill: int, rows: int) -> list[int]:
    """The likeliest id behind every id: `prefill` of them at once, then `rows` at a time."""
    model.begin()
    found: list[int] = model.tops(token_ids[:prefill]).tolist()
    for start in range(prefill, len(token_ids), rows):
        found += model.tops(token_ids[start : start + rows]).tolist()
    return found


def greedy_reply(
    model: Forced, prompt: Sequence[int], *, most: int, stop_ids: frozenset[int]
) -> tuple[list[int], list[int]]:
    """(ids, the likeliest id behind each of them) of a prompt and the model's own reply to it."""
    model.begin()
    tops: list[int] = model.tops(prompt).tolist()
    ids = list(prompt)
    while len(ids) - len(prompt) < most and tops[-1] not in stop_ids:
        ids.append(tops[-1])
        tops += model.tops(ids[-1:]).tolist()
    return ids, tops
