"""A sliding window is found in the masks, and only a real one."""

from __future__ import annotations

import pytest

from fleetchat.cutter.view import GraphView, view_of
from fleetchat.cutter.window import find_window, mask_nodes, window_candidates
from tests.cutter.fixture_models import CORE, FAMILIES, whole_ir


def view(family: str) -> GraphView:
    return view_of(CORE.read_model(whole_ir(family)))


@pytest.mark.slow
def test_the_window_of_a_windowed_model_is_found() -> None:
    assert find_window(CORE, lambda: CORE.read_model(whole_ir("mistral")), view("mistral")) == 16


@pytest.mark.parametrize("family", FAMILIES)
def test_models_without_a_window_have_none(family: str) -> None:
    assert find_window(CORE, lambda: CORE.read_model(whole_ir(family)), view(family)) == 0


def test_all_layers_share_one_mask() -> None:
    seen = view("mistral")
    (mask,) = mask_nodes(seen)
    assert window_candidates(seen, mask) == (16,)


@pytest.mark.slow
def test_a_number_that_is_no_window_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With axis numbers among the candidates, the computed mask still tells the difference."""
    monkeypatch.setattr("fleetchat.cutter.window._SMALLEST_WINDOW", 2)
    seen = view("llama")
    assert window_candidates(seen, mask_nodes(seen)[0]) == (2, 3)
    assert find_window(CORE, lambda: CORE.read_model(whole_ir("llama")), seen) == 0
