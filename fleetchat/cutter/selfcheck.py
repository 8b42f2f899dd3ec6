"""Does the chain of stages say what the whole model says. Run once at the end of a build.

Two kinds of equal, in exact precision:

*Same graph*: the chain is fed like the whole, all rows through lm_head, same chunks and threads. The cut
itself must change nothing: 0.0. That the last stage gathers its rows does no harm here, because gathering
all rows leaves the matrix product of lm_head the shape that it has in the whole; with fewer rows another
kernel may run, which is worth up to 2.3e-5 (research/openvino.md section 11).

*Same mathematics*: gathered rows, other chunks, single rows and K + 1 rows, and cells hidden by a rollback.
Kernels differ, so the last bits do: at most 1e-4. Rounding noise grows with the logits (the default model's
reach 33, and feeding it token by token instead of at once moves them by up to 1.2e-4), so models with
logits above 10 are allowed 1e-5 of the largest one. A wrong cut or a polluted cache shows as 1e-1 and more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import openvino as ov

from fleetchat.cutter.cut import read_whole
from fleetchat.cutter.manifest import SelfCheck
from fleetchat.cutter.trial import FloatArray, IntArray, Trial
from fleetchat.engine.precision import Precision, openvino_config
from fleetchat.errors import BuildError

TOLERANCE = 1e-4  # of logits, for the same mathematics
_RELATIVE_TOLERANCE = 1e-5
UNUSABLE = 1e30  # the difference when shapes differ or a value is not finite; JSON has no infinity

_PROMPT = 24
TAIL = (1, 1, 4)  # how the reference goes on after the prompt
_LONGEST_WINDOW = 512  # up to this one, the prompt is made longer than the window
WRONG = 3  # rejected drafts in a rollback

OnProgress = Callable[[str, int, int], None]


def self_check(
    whole_xml: Path,
    stage_xmls: Sequence[Path],
    *,
    window: int = 0,
    threads: int | None = None,
    on_progress: OnProgress = lambda step, done, total: None,
) -> SelfCheck:
    """Compare the chain with the whole model. `window` is the model's smallest sliding window, 0 = none.

    Raises BuildError when the chain is not the whole model. A failed rollback is recorded, not raised: it
    only rules out speculation by mask. A model with a window never passes it, even when the window is too
    long to be tried out, because the mask hides cells and the window counts them (research/families.md
    4.4).
    """
    core = ov.Core()
    config = exact_config(threads)
    steps = len(stage_xmls) + 3
    on_progress("loading the whole model", 0, steps)
    whole = core.compile_model(read_whole(core, whole_xml), "CPU", config)
    stages = []
    for index, xml in enumerate(stage_xmls):
        on_progress(f"loading stage {index}", index + 1, steps)
        stages.append(core.compile_model(core.read_model(xml), "CPU", config))
    on_progress("comparing the chain with the whole", steps - 2, steps)
    check = _compare(whole, stages, likely_ids(whole, prompt_length(window) + sum(TAIL)), window)
    on_progress("compared", steps, steps)
    return check


def exact_config(threads: int | None) -> dict[str, object]:
    """What models are compared with; None takes all cores."""
    return openvino_config(Precision.EXACT, threads or os.cpu_count() or 1)


def prompt_length(window: int) -> int:
    """Rows of the prompt: beyond the window, where that is short enough to be tried out."""
    return window + 2 * WRONG if 0 < window <= _LONGEST_WINDOW else _PROMPT


def likely_ids(whole: ov.CompiledModel, count: int) -> IntArray:
    """Tokens drawn from the model itself, the same at every build. Arbitrary ones make more noise."""
    random = np.random.default_rng(0)
    trial = Trial([whole])
    ids = [int(random.integers(_vocabulary(whole)))]
    while len(ids) < count:
        logits = trial.feed(np.array(ids[-1:]))[0]
        ids.append(int((logits + random.gumbel(size=len(logits))).argmax()))
    return np.array(ids, np.int64)


def difference(ours: FloatArray, theirs: FloatArray) -> float:
    """Largest absolute difference; UNUSABLE for other shapes, no rows, or anything not finite.

    A plain maximum would let NaN pass, and a model that lost its batch axis returns no rows at all.
    """
    if ours.shape != theirs.shape or ours.size == 0:
        return UNUSABLE
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return UNUSABLE
    return float(np.abs(ours - theirs).max())


def tolerance_for(logits: FloatArray) -> float:
    """Largest difference that counts as the same mathematics, for a model with such logits."""
    return max(TOLERANCE, _RELATIVE_TOLERANCE * float(np.abs(logits).max()))


def _compare(
    whole: ov.CompiledModel, stages: Sequence[ov.CompiledModel], ids: IntArray, window: int
) -> SelfCheck:
    prompt = len(ids) - sum(TAIL)
    sizes = (prompt, *TAIL)
    reference = _all_rows(Trial([whole]), ids, sizes)
    chain = Trial(stages)
    same_graph = difference(_all_rows(chain, ids, sizes), reference)
    same_mathematics = _gathered_difference(Trial(stages), ids, prompt, reference)
    rollback = _rollback_difference(Trial(stages), ids, prompt, reference)
    found = SelfCheck(same_graph, same_mathematics, rollback, True, min(chain.largest_activation, UNUSABLE))
    return judged(found, tolerance_for(reference), window)


def judged(found: SelfCheck, tolerance: float, window: int) -> SelfCheck:
    """The differences found, and whether the rollback passes. Raises BuildError for the other two."""
    _require("the stages differ from the whole model", found.same_graph, 0.0)
    _require("with other chunks the stages differ from the whole model", found.same_mathematics, tolerance)
    return replace(found, rollback_passed=found.rollback <= tolerance and window == 0)


def _require(what: str, found: float, limit: float) -> None:
    if found == UNUSABLE:
        raise BuildError(f"{what}: logits of another shape, or not finite")
    if found > limit:
        raise BuildError(f"{what} by {found:.3g} in the logits, more than {limit:.3g}")


def _all_rows(trial: Trial, ids: IntArray, sizes: Sequence[int]) -> FloatArray:
    return np.concatenate([trial.feed(chunk) for chunk in chunks(ids, sizes)])


def _gathered_difference(trial: Trial, ids: IntArray, prompt: int, reference: FloatArray) -> float:
    """The prompt in two chunks with one row wanted of each, then K + 1 rows and single rows."""
    sizes = (prompt - prompt // 2, prompt // 2, *reversed(TAIL))
    differences = []
    for chunk in chunks(ids, sizes):
        first = trial.length
        wanted = np.array([len(chunk) - 1]) if first < prompt else np.arange(len(chunk))
        differences.append(difference(trial.feed(chunk, wanted), reference[first + wanted]))
    return max(differences)  # never NaN: see difference()


def _rollback_difference(trial: Trial, ids: IntArray, prompt: int, reference: FloatArray) -> float:
    """Wrong drafts are fed and hidden, three times, and the right tokens go on behind the holes.

    All slices have a number of rows that the other runs have too: OpenVINO prepares kernels for each new one.
    """
    last = np.array([prompt - 1])
    differences = [difference(trial.feed(ids[:prompt], last), reference[last])]
    wrong = ids[:WRONG]
    for right in chunks(ids[prompt:], TAIL):
        first = trial.length
        kept = trial.feed(np.concatenate([right[:1], wrong]), np.array([0]))
        differences.append(difference(kept, reference[first : first + 1]))
        trial.hide(WRONG)
        for token in right[1:]:
            row = trial.feed(np.array([token]))
            differences.append(difference(row, reference[trial.length - 1 : trial.length]))
    return max(differences)


def chunks(ids: IntArray, sizes: Sequence[int]) -> Iterator[IntArray]:
    start = 0
    for size in sizes:
        yield ids[start : start + size]
        start += size


def _vocabulary(whole: ov.CompiledModel) -> int:
    return int(whole.output(0).get_partial_shape()[2].get_length())
