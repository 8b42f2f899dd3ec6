"""`bench fusion`: what it is worth that attention keeps its KV cache inside one operation."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import openvino as ov

from fleetchat.bench.pairs import Measure, alternate, paired_row
from fleetchat.bench.pinning import pinned
from fleetchat.bench.report import Report
from fleetchat.bench.setting import Setting
from fleetchat.bench.stage_engine import OpenEngine, States, feed, load_stage
from fleetchat.bench.subject import Subject, prepare
from fleetchat.bench.workloads import plain_text
from fleetchat.cutter.fusion import strip_gather
from fleetchat.errors import FleetError

CONTEXT = 2048
QUICK_CONTEXT = 512  # that is read and compared; its cells are repeated until they are CONTEXT
STAGES = 2
STAGE = 0  # takes token ids; it has no head, whose work would hide a part of the difference
AGREEMENT = 1e-3  # of the outputs, before anything is timed
COMPARED_STEPS = 8


async def measure_fusion(setting: Setting) -> Report:
    """Row `fusion.decode.2048`. Raises FleetchatError, also when the control computes something else."""
    effort = setting.effort
    subject = await prepare(setting, STAGES)
    read = QUICK_CONTEXT if effort.quick else CONTEXT
    ids = text_ids(subject, CONTEXT)
    with tempfile.TemporaryDirectory() as folder, pinned(setting.cores):
        control = write_control(subject, Path(folder) / "control.xml")
        setting.note("comparing the outputs in exact precision")
        difference, states = compared(subject, control, ids, read)
        if not difference <= AGREEMENT:
            raise FleetError(
                f"the control differs from the fused stage by {difference:g}: it cannot be compared with it"
            )
        setting.note(f"they agree within {difference:.1e}; loading both in {setting.precision}")
        engines = {
            "fused": load_stage(subject, STAGE, setting.precision),
            "control": load_stage(subject, STAGE, setting.precision, xml=control, attention_layers=0),
        }
        measured = await alternate(
            {
                name: _decoding(engine, states, ids, setting.effort.seconds)
                for name, engine in engines.items()
            },
            setting.effort.pairs,
            lambda pair: setting.note(f"pair {pair + 1} of {setting.effort.pairs}"),
        )
    row = paired_row(f"fusion.decode.{CONTEXT}", "tokens/s", measured["fused"], measured["control"])
    return Report(
        title="decoding with the KV cache inside the attention, against the same stage without that",
        setup=(
            f"stage {STAGE} of {STAGES} of {subject.manifest.model} "
            f"({subject.manifest.stages[STAGE].attention_layers} layers), {setting.precision}, one thread, "
            f"in this process; each member begins with {CONTEXT} full cells and decodes {effort.seconds:g} s"
        ),
        formula="rows decoded one by one / seconds; the control has no Gather on beam_idx",
        ceiling="none that is known: the control copies the cache of every layer once a row",
        rows=(row,),
        notes=(
            f"before timing, in exact: the outputs agree within {difference:.1e}, over {read} rows read at "
            f"once and {COMPARED_STEPS} more one by one",
        ),
    )


def text_ids(subject: Subject, count: int) -> list[int]:
    """`count` token ids of plain English."""
    ids = subject.chat_format.tokenizer.encode(plain_text(), specials=False)
    return (ids * (count // len(ids) + 1))[:count]


def write_control(subject: Subject, xml: Path) -> Path:
    """The stage without the Gather that makes it fuse. Raises FleetError when it had none."""
    model = ov.Core().read_model(subject.store.stage_xml(subject.manifest, STAGE))
    if strip_gather(model) == 0:
        raise FleetError("the stage has no Gather on its KV cache: there is nothing to compare")
    ov.save_model(model, xml, compress_to_fp16=False)
    return xml


def compared(subject: Subject, control: Path, ids: list[int], read: int) -> tuple[float, States]:
    """The largest difference of the outputs in exact, of a prefill of `read` rows and of steps after it.

    And the states then, repeated until they have CONTEXT cells.
    """
    outputs = []
    states: States = {}
    for xml, layers in ((control, 0), (None, None)):
        engine = load_stage(subject, STAGE, "exact", xml=xml, attention_layers=layers)
        rows = [feed(engine, 1, 0, ids[:read]).copy()]
        rows += [feed(engine, 1, read + step, [ids[step]]).copy() for step in range(COMPARED_STEPS)]
        outputs.append(np.concatenate(rows))
        states = engine.repeated(engine.states(1, read), CONTEXT // read)
        engine.close()
    return float(np.abs(outputs[0] - outputs[1]).max()), states


def _decoding(engine: OpenEngine, states: States, ids: list[int], seconds: float) -> Measure:
    """Rows a second behind a full context."""

    async def measure(pair: int) -> float:
        engine.restore(1, states, CONTEXT)
        feed(engine, 1, CONTEXT, ids[:1])  # grows the cache out of its exact size
        position = CONTEXT + 1
        started = time.perf_counter()
        while (now := time.perf_counter()) - started < seconds:
            feed(engine, 1, position, [ids[position % CONTEXT]])
            position += 1
        return (position - CONTEXT - 1) / (now - started)

    return measure
