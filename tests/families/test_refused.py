"""Models that cannot be cut as wished say why, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.cutter.cut import cut_model
from fleetchat.errors import CutRefused
from tests.cutter.fixture_models import whole_ir

SECOND = "each layer takes another tensor besides the hidden state, such as per-layer embeddings"
SHARED = "2 of the 5 attention layers use the KV cache of another layer"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stages", "message", "hint"),
    [
        ("gemma3n", 2, f"the model cannot be cut into 2 stages, only into 1: {SECOND}", "use --stages 1"),
        ("gemma4-ple", 2, f"the model cannot be cut into 2 stages, only into 1: {SECOND}", "use --stages 1"),
        (
            "gemma4-shared",
            3,
            f"the model cannot be cut into 3 stages, only into 2: {SHARED}",
            "use --stages 2",
        ),
        (
            "t5",
            2,
            "the model is the decoder of an encoder-decoder: all its layers look at the encoder's output",
            "use a decoder-only text-generation model",
        ),
        ("llama3", 4, "cannot cut 3 layers into 4 stages", "ask for at most 3 stages"),
    ],
)
def test_what_cannot_be_cut_says_why(name: str, stages: int, message: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(CutRefused) as refused:
        cut_model(whole_ir(name), tmp_path, stages=stages, ranges=None, on_progress=lambda *_: None)
    assert (refused.value.message, refused.value.hint) == (message, hint)
    assert list(tmp_path.iterdir()) == []
