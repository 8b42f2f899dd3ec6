from __future__ import annotations

import pytest
from rich.cells import cell_len

from fleetchat.app.chat_state import ChatState
from fleetchat.app.events import ChatNumber
from fleetchat.app.widgets.header_line import what_fits
from fleetchat.app.words import counted, progress_line, reply_footer
from fleetchat.fleet.telemetry import Answer, FinishReason
from tests.fakes.runtime import answer

FIGURES = "2 tokens · 21.4 tokens/s · first token after 0.18 s"


def footer(reply: Answer, context: int) -> str:
    state = ChatState(ChatNumber(1))
    state.begin_reply("model", 0.0)
    node = state.finish(reply, seen=True)
    assert node is not None
    return reply_footer(node, context)


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
    assert footer(answer("two words", reason=reason), 2048) == f"{FIGURES} · {words}"


def test_an_error_has_lines_of_its_own() -> None:
    lost = answer("two words", reason=FinishReason.ERROR, error=("stage 1 is lost", "start it"))
    assert footer(lost, 2048) == f"{FIGURES}\nfailed: stage 1 is lost\nhint: start it"
    unknown = answer("", reason=FinishReason.ERROR)
    assert footer(unknown, 2048) == "failed: no cause was given"


def test_a_reply_without_tokens_has_no_figures() -> None:
    assert footer(answer("", reason=FinishReason.CANCELLED), 2048) == "stopped by you"


def test_counted() -> None:
    assert [counted(number, "token") for number in (0, 1, 2048)] == ["0 tokens", "1 token", "2,048 tokens"]


def test_progress() -> None:
    assert progress_line("cutting", 1, 2, 40) == f"cutting  {'█' * 12}{'░' * 12}   50 %"
    assert progress_line("cutting", 2, 2, 40) == f"cutting  {'█' * 24}  100 %"
    assert progress_line("cutting", 9, 2, 20) == "cutting  100 %"
    assert progress_line("fetching", 0, 0, 40) == "fetching …"
    for width in range(20, 60):
        assert cell_len(progress_line("cutting", 1, 3, width)) <= width


def test_the_header_leaves_out_what_does_not_fit_and_cuts_nothing() -> None:
    parts = ("fleetchat", "", "A model", "2 stages", "fast")
    assert what_fits(parts, 40) == "fleetchat · A model · 2 stages · fast"
    assert what_fits(parts, 36) == "fleetchat · A model · 2 stages"
    assert what_fits(parts, 25) == what_fits(parts, 5) == "fleetchat · A model"
