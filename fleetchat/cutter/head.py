"""The end of the last stage: only the rows asked for go through lm_head.

A prefill of 2,000 tokens then computes one row of logits, and a verify slice only those that it draws from.
"""

from __future__ import annotations

import numpy as np
import openvino as ov
from openvino import opset15 as ops

from fleetchat.errors import CutRefused

LOGIT_ROWS = "logit_rows"


def gather_rows(head_input: ov.Output, hidden: int) -> ov.Node:
    """Let everything behind `head_input` [batch, rows, hidden] see [1, n, hidden]; return the Parameter.

    The new Parameter `logit_rows` i64 [n] indexes the flattened [batch * rows]. Raises CutRefused when
    something asks for the shape of the tensor, since that shape changes.
    """
    consumers = list(head_input.get_target_inputs())
    if any(consumer.get_node().get_type_name() == "ShapeOf" for consumer in consumers):
        raise CutRefused("the output layer depends on the number of rows; rows cannot be picked before it")
    rows = ops.parameter([-1], np.int64, name=LOGIT_ROWS)
    rows.output(0).set_names({LOGIT_ROWS})
    flat = ops.reshape(head_input, np.array([-1, hidden], np.int64), special_zero=False)
    picked = ops.gather(flat, rows, np.int64(0))
    batch = ops.unsqueeze(picked, np.int64(0))
    for consumer in consumers:
        consumer.replace_source_output(batch.output(0))
    return rows


def flat_logits(logits: ov.Output, vocabulary: int) -> ov.Node:
    """A Result `logits` f32 [n, vocabulary] of logits [1, n, vocabulary]."""
    flat = ops.reshape(logits, np.array([-1, vocabulary], np.int64), special_zero=False)
    flat.output(0).set_names({"logits"})
    result = ops.result(flat)
    result.set_friendly_name("logits")
    return result
