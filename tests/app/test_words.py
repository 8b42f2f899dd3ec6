from __future__ import annotations

import pytest
from rich.cells import cell_len

from fleetchat.app.words import counted, progress_line, reply_footer
from fleetchat.fleet.telemetry import FinishReason
from tests.fakes.runtime import answer

FIGURES = "2 tokens · 21.4 tokens/s · first token after 0.18 s"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (FinishReason.STOP, "finished"),
        (FinishReason.LENGTH, "cut at the limit of 2 tokens a reply"),
        (FinishReason.CONTEXT, "the context of 2,048 tokens is full; start a new chat (Ctrl+N)"),
        (FinishReason.CANCELLED, "stopped by you"),
    ],
)
def test_why_a_reply_ended(reason: FinishReason, words: str) -> None:
    assert reply_footer(answer("two words", reason=reason), 2048) == f"{FIGURES} · {words}"


def test_an_error_has_lines_of_its_own() -> None:
    lost = answer("two words", reason=FinishReason.ERROR, error=("stage 1 is lost", "start it"))
    assert reply_footer(lost, 2048) == f"{FIGURES}\nfailed: stage 1 is lost\nhint: start it"
    unknown = answer("", reason=FinishReason.ERROR)
    assert reply_footer(unknown, 2048) == "failed: no cause was given"


def test_a_reply_without_tokens_has_no_figures() -> None:
    assert reply_footer(answer("", reason=FinishReason.CANCELLED), 2048) == "stopped by you"


def test_counted() -> None:
    assert [counted(number, "token") for number in (0, 1, 2048)] == ["0 tokens", "1 token", "2,048 tokens"]


def test_progress() -> None:
    assert progress_line("cutting", 1, 2, 40) == f"cutting  {'█' * 12}{'░' * 12}   50 %"
    assert progress_line("cutting", 2, 2, 40) == f"cutting  {'█' * 24}  100 %"
    assert progress_line("cutting", 9, 2, 20) == "cutting  100 %"
    assert progress_line("fetching", 0, 0, 40) == "fetching …"
    for width in range(20, 60):
        assert cell_len(progress_line("cutting", 1, 3, width)) <= width
