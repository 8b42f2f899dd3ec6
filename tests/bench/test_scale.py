"""Names of rows, and the draft model that is always wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from fleetchat.bench.scale import Plan, check_plan
from fleetchat.bench.wrong_draft import constant_model, never_drawn
from fleetchat.errors import InputError
from fleetchat.fleet.draft.model import DraftModel


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (Plan(), "scale.2x2.none.0.masked.chat"),
        (Plan(drafter="none", depth=4), "scale.2x2.none.0.masked.chat"),
        (
            Plan(stages=3, sessions=8, drafter="ngram", workload="rewrite"),
            "scale.3x8.ngram.adaptive.masked.rewrite",
        ),
        (Plan(sessions=1, drafter="wrong", depth=4, workload="code"), "scale.2x1.wrong.4.masked.code"),
    ],
)
def test_a_row_is_named_by_its_chain(plan: Plan, name: str) -> None:
    assert plan.name == name


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(stages=0), "--stages must be at least 1"),
        (Plan(sessions=0), "--sessions must be at least 1"),
        (Plan(drafter="ngram", depth=0), "--draft-depth must be adaptive or at least 1"),
        (Plan(drafter="model"), "needs a draft model"),
    ],
)
def test_what_cannot_be_measured_is_refused(plan: Plan, said: str) -> None:
    with pytest.raises(InputError) as refused:
        check_plan(plan)
    assert said in refused.value.message


def test_the_wrong_draft_needs_no_draft_model() -> None:
    check_plan(Plan(drafter="wrong"))


@dataclass
class FakeManifest:
    bos_id: int | None
    vocabulary: int = 100


@dataclass
class FakeSubject:
    manifest: FakeManifest
    stop_ids: frozenset[int] = frozenset({2})


@pytest.mark.parametrize(("bos", "token"), [(1, 1), (2, 99), (None, 99)])
def test_the_wrong_token_is_one_that_ends_no_reply(bos: int | None, token: int) -> None:
    assert never_drawn(FakeSubject(FakeManifest(bos))) == token  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_wrong_draft_is_a_model_that_always_says_the_same(tmp_path: Path) -> None:
    ov.save_model(constant_model(50, 7), tmp_path / "openvino_model.xml", compress_to_fp16=False)
    cache = DraftModel(tmp_path, precision="exact", threads=1).new_cache()
    logits = cache.feed([1, 2, 3])
    assert logits is not None
    assert np.flatnonzero(logits).tolist() == [7]
    cache.truncate(2)
    logits = cache.feed([4])
    assert logits is not None
    assert (int(logits.argmax()), len(logits), cache.length) == (7, 50, 3)
