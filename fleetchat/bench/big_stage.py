"""One stage of a large model in a process of its own, whose memory can be watched: cut, loaded, run.

One JSON object on stdin, one a line on stdout::

    {"whole": XML, "folder": …, "ranges": [[0, 15], …], "index": i, "precision": …, "threads": N,
     "entering": NPZ or null, "leaving": NPZ, "prompt": N, "steps": N}
    -> {"step": text} … then {"cut_s", "load_s", "prefill_s", "decode_s", "loaded_bytes", "largest", "apart"}

`entering` holds what the stage before put out: `prompt` f32 [rows, hidden], `steps` f32 [steps, hidden]. The
first stage takes tokens instead. What this stage puts out goes to `leaving`, but for the last one's logits.
`apart` is how far the stage is from the same layers in the graph that it was cut from.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetchat.bench.peak import anonymous_now
from fleetchat.cutter.cut import CutResult, CutStage, cut_model
from fleetchat.cutter.stagewise import ids_needed, same_graph
from fleetchat.engine.huge_pages import use_huge_pages
from fleetchat.engine.interface import EngineSlice
from fleetchat.engine.masked import MaskedEngine
from fleetchat.errors import FleetchatError, FleetError
from fleetchat.ids import ChainId, SessionId, SessionKey

CONTEXT = 4096
KEY = SessionKey(ChainId("bench"), SessionId(1))

Rows = NDArray[np.float32]


def measured(order: dict[str, Any]) -> dict[str, float]:
    """Cut, load and run one stage. Raises FleetchatError."""
    tell("cutting")
    started = time.perf_counter()
    cut = cut_model(
        Path(order["whole"]),
        Path(order["folder"]),
        stages=None,
        ranges=tuple((first, last) for first, last in order["ranges"]),
        on_progress=lambda step, done, total: None,
        only=(order["index"],),
    )
    (stage,) = cut.stages
    cut_seconds = time.perf_counter() - started
    tell("loading")
    before, started = anonymous_now(os.getpid()), time.perf_counter()
    engine = _loaded(order, cut, stage)
    load_seconds = time.perf_counter() - started
    loaded = anonymous_now(os.getpid()) - before
    tell("running")
    entering = dict(np.load(order["entering"])) if order["entering"] else {}
    is_last = order["index"] == len(order["ranges"]) - 1
    prefill_seconds, prompt = _timed(engine, 0, order["prompt"], entering.get("prompt"), is_last)
    decode_seconds, steps = [], []
    for step in range(order["steps"]):
        row = entering["steps"][step : step + 1] if entering else None
        seconds, rows = _timed(engine, order["prompt"] + step, 1, row, is_last)
        decode_seconds.append(seconds)
        steps.append(rows)
    if not is_last:
        np.savez(order["leaving"], prompt=prompt, steps=np.concatenate(steps))
    engine.close()
    del engine
    tell("comparing with the whole")
    first, last = order["ranges"][order["index"]]
    ids = np.arange(ids_needed(0)) % 256
    apart = same_graph(Path(order["whole"]), stage.xml, (first, last), ids, threads=order["threads"])
    return {
        "cut_s": cut_seconds,
        "load_s": load_seconds,
        "prefill_s": prefill_seconds,
        "decode_s": median(decode_seconds),
        "loaded_bytes": loaded,
        "apart": apart,
        "largest": float(max(np.abs(prompt).max(), *(np.abs(rows).max() for rows in steps))),
    }


def _loaded(order: dict[str, Any], cut: CutResult, stage: CutStage) -> MaskedEngine:
    engine = MaskedEngine(
        stage.xml,
        first_stage=order["index"] == 0,
        last_stage=order["index"] == len(order["ranges"]) - 1,
        hidden=cut.shape.hidden,
        vocabulary=cut.shape.vocabulary,
        precision=order["precision"],
        threads=order["threads"],
        context=CONTEXT,
        kv_values_per_cell=sum(heads * size for heads, size in stage.kv_shapes),
        cells=2 * CONTEXT,
        attention_layers=stage.attention_layers,
    )
    use_huge_pages()
    return engine


def _timed(
    engine: MaskedEngine, first: int, count: int, hidden: Rows | None, is_last: bool
) -> tuple[float, Rows]:
    """Seconds for so many rows at `first`, and a copy of what came out. Raises FleetError."""
    ids = np.arange(first, first + count, dtype=np.int32) % 256
    started = time.perf_counter()
    (output,) = engine.run([EngineSlice(KEY, first, ids, hidden, 1 if is_last else 0)])
    seconds = time.perf_counter() - started
    if output.fault is not None:
        raise FleetError(f"the stage failed: {output.fault[1]}")
    if not np.isfinite(output.rows).all():
        raise FleetError("the stage put out values that are not finite")
    return seconds, output.rows.copy()


def tell(step: str) -> None:
    print(json.dumps({"step": step}), flush=True)


def main() -> None:
    """Carry out the order on stdin."""
    try:
        said: dict[str, Any] = measured(json.loads(sys.stdin.readline()))
    except FleetchatError as error:
        said = {"error": error.message}
    except (RuntimeError, MemoryError, OSError) as error:
        said = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
