"""The worst draft model there is: it is always sure of a token that the target never draws."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset15 as ops
from openvino.op.util import Variable, VariableInfo

from fleetchat.bench.subject import Subject
from fleetchat.fleet.draft.model import MODEL_FILE

VOCABULARY_FILE = "tokenizer.json"
SURE = 100.0  # the logit of its token; all others have 0


def write_wrong_draft(subject: Subject, folder: Path) -> Path:
    """A draft model for `subject` in `folder`: its IR and the vocabulary that it is checked by."""
    manifest = subject.manifest
    built = subject.store.folder(manifest.build_key)
    shutil.copyfile(built / manifest.tokenizer.name, folder / VOCABULARY_FILE)
    model = constant_model(manifest.vocabulary, never_drawn(subject))
    ov.save_model(model, folder / MODEL_FILE, compress_to_fp16=False)
    return folder


def never_drawn(subject: Subject) -> int:
    """The token that begins a text or a turn: no reply has it."""
    bos = subject.manifest.bos_id
    return bos if bos is not None and bos not in subject.stop_ids else subject.manifest.vocabulary - 1


def constant_model(vocabulary: int, token_id: int) -> ov.Model:
    """A stateful causal model whose logits are the same behind every row; its state is a number a row."""
    ids = _input("input_ids", [-1, -1], np.int64)
    mask = _input("attention_mask", [-1, -1], np.int64)
    beam = _input("beam_idx", [-1], np.int32)
    variable = _state()
    shape = ops.shape_of(ids)
    batch = ops.gather(shape, np.array([0]), np.int64(0))
    empty = ops.broadcast(np.float32(0), ops.concat([batch, np.array([1, 0, 1])], 0))
    past = ops.gather(ops.read_value(empty, variable), beam, np.int64(0))
    rows = ops.reshape(ops.convert(ids, "f32"), np.array([0, 1, -1, 1]), True)
    present = ops.concat([past, rows], 2)
    # Nothing that the model is given may be optimised away, and nothing may change what it says.
    nothing = ops.multiply(ops.reduce_sum(ops.convert(mask, "f32"), np.array([0, 1])), np.float32(0))
    sure = np.zeros((1, 1, vocabulary), dtype=np.float32)
    sure[..., token_id] = SURE
    wanted = ops.concat([shape, np.array([vocabulary])], 0)
    logits = ops.add(ops.broadcast(sure, wanted, broadcast_spec="BIDIRECTIONAL"), nothing)
    logits.output(0).set_names({"logits"})
    return ov.Model([ops.result(logits)], [ops.assign(present, variable)], [ids, mask, beam], "wrong")


def _input(name: str, shape: list[int], dtype: type) -> ov.Node:
    parameter = ops.parameter(shape, dtype, name=name)
    parameter.output(0).set_names({name})
    return parameter


def _state() -> Variable:
    info = VariableInfo()
    info.data_shape = ov.PartialShape([-1, 1, -1, 1])
    info.data_type, info.variable_id = ov.Type.f32, "past"
    return Variable(info)
