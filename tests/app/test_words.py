from __future__ import annotations

import dataclasses

import pytest
from rich.cells import cell_len

from fleetchat.app.chat_state import ChatState
from fleetchat.app.events import ChatNumber
from fleetchat.app.widgets.header_line import what_fits
from fleetchat.app.words import (
    Phase,
    context_words,
    counted,
    finish_words,
    header_state,
    progress_line,
    reply_figures,
    reply_footer,
)
from fleetchat.chat.tree import Figures
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


def continued(*parts: Answer) -> ChatState:
    """A chat with one reply that came in parts: each prompt ends with what was written before."""
    state = ChatState(ChatNumber(1))
    state.ask("question", 0.0)
    state.begin_reply("model", 0.0)
    state.finish(parts[0], seen=True)
    written = parts[0].completion_tokens
    for part in parts[1:]:
        state.begin_continuation("model")
        state.finish(dataclasses.replace(part, prompt_tokens=part.prompt_tokens + written), seen=True)
        written += part.completion_tokens
    return state


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.CANCELLED, FinishReason.LENGTH])
def test_a_continued_reply_counts_once(reason: FinishReason) -> None:
    sizes = (88, 5, 40)
    for number in range(1, len(sizes) + 1):
        parts = [answer("words", reason=reason, tokens=size) for size in sizes[:number]]
        state = continued(*parts)
        tokens = sum(sizes[:number])
        assert context_words(state, "", 1000) == f"{12 + tokens} of 1,000 tokens"
        [_, reply] = state.path
        assert reply_figures(reply.figures) == f"{tokens} tokens · 21.4 tokens/s · first token after 0.18 s"


@pytest.mark.parametrize("before", [FinishReason.STOP, FinishReason.CANCELLED, FinishReason.LENGTH])
def test_what_has_nothing_to_add_is_complete_and_costs_nothing(before: FinishReason) -> None:
    first = answer("two words", reason=before)
    state = continued(first, answer(""))
    [_, reply] = state.path
    assert reply == dataclasses.replace(
        continued(answer("two words")).path[1],
        id=reply.id,
        parent=reply.parent,
        notes=("the model has nothing to add: this reply is complete",),
    )
    assert context_words(state, "", 100) == "14 of 100 tokens"


def test_a_continuation_that_brought_nothing_keeps_the_figures() -> None:
    for reason, words in (
        (FinishReason.CANCELLED, " · stopped by you"),
        (FinishReason.ERROR, "\nfailed: lost"),
    ):
        state = continued(answer("two words"), answer("", reason=reason, error=("lost", "")))
        assert reply_footer(state.path[1], 2048) == f"{FIGURES}{words}"


def test_the_limit_of_a_continuation_is_the_limit_of_a_reply() -> None:
    cut = answer("words", reason=FinishReason.LENGTH, tokens=6)
    said = [finish_words(continued(*[cut] * times).path[1], 2048) for times in (1, 2, 3)]
    assert said == [
        "cut at the limit of 6 tokens a reply",
        *["cut again, at the limit of 6 tokens at a time"] * 2,
    ]


def test_the_speed_of_a_continued_reply_is_that_of_all_its_tokens() -> None:
    slow, fast = Figures(tokens=10, tokens_per_s=10.0), Figures(tokens=30, tokens_per_s=30.0)
    assert fast.after(slow).tokens_per_s == 20.0
    assert fast.after(Figures(tokens=5)).tokens_per_s == 30.0
    assert Figures(tokens=1).after(Figures()).tokens_per_s == 0.0


def test_what_is_saved_of_a_continuation_has_no_ids_that_end_before_its_text() -> None:
    state = continued(answer("two words", reason=FinishReason.CANCELLED))
    state.begin_continuation("model")
    assert state.turn().messages[-1].token_ids == (0, 1)
    state.take(" more")
    left = state.abandon()
    assert left is not None
    assert (left.text, left.token_ids) == ("two words more", None)


def test_the_count_of_an_edit_has_nothing_of_what_it_replaces() -> None:
    state = continued(answer("words", tokens=88))
    second = state.ask("again", 1.0)
    state.begin_reply("model", 1.0)
    state.finish(dataclasses.replace(answer("more", tokens=50), prompt_tokens=130), seen=True)
    typed = 8 * "word"
    assert context_words(state, typed, 200) == "about 188 of 200 tokens"
    state.editing = second.id
    assert context_words(state, typed, 200) == "about 108 of 200 tokens"
    state.editing = state.path[0].id
    assert context_words(state, typed, 200) == ""
    assert context_words(state, 8 * typed, 200) == "about 64 of 200 tokens"
    edited = state.ask(typed, 2.0)
    assert state.path == (edited,)
    assert context_words(state, typed, 200) == ""


def test_below_a_reply_stands_what_its_reader_understands_in_a_short_line() -> None:
    figures = Figures(
        tokens=69, tokens_per_s=30.3, ttft_ms=120.0, drafted=24, rollbacks=9, compactions=2, recoveries=0
    )
    plain = "69 tokens · 30.3 tokens/s · first token after 0.12 s"
    assert reply_figures(figures) == plain
    assert reply_figures(dataclasses.replace(figures, drafted=0)) == plain
    some_right = dataclasses.replace(figures, accepted=3)
    assert reply_figures(some_right) == f"{plain} · 3 of 24 guesses right"
    assert cell_len(reply_figures(some_right)) < 80
    recovered = dataclasses.replace(figures, recoveries=1)
    assert reply_figures(recovered) == f"{plain} · 1 recovery"


def test_counted() -> None:
    assert [counted(number, "token") for number in (0, 1, 2048)] == ["0 tokens", "1 token", "2,048 tokens"]


def test_progress() -> None:
    assert progress_line("cutting", 1, 2, 40) == f"cutting  {'█' * 12}{'░' * 12}   50 %"
    assert progress_line("cutting", 2, 2, 40) == f"cutting  {'█' * 24}  100 %"
    assert progress_line("cutting", 9, 2, 20) == "cutting  100 %"
    assert progress_line("fetching", 0, 0, 40) == "fetching …"
    for width in range(20, 60):
        assert cell_len(progress_line("cutting", 1, 3, width)) <= width


def test_the_header_says_that_a_lost_fleet_is_brought_back_and_no_speed() -> None:
    assert header_state(Phase.READY, 2, 68.1) == "2 chats writing   68.1 tokens/s"
    assert header_state(Phase.READY, 2, 68.1, trouble=True) == "bringing the fleet back"
    assert header_state(Phase.READY, 0, 0.0, trouble=True) == "bringing the fleet back"
    assert header_state(Phase.FAILED, 1, 0.0, trouble=True) == Phase.FAILED.value


def test_the_header_leaves_out_what_does_not_fit_and_cuts_nothing() -> None:
    parts = ("fleetchat", "", "A model", "2 stages", "fast")
    assert what_fits(parts, 40) == "fleetchat · A model · 2 stages · fast"
    assert what_fits(parts, 36) == "fleetchat · A model · 2 stages"
    assert what_fits(parts, 25) == what_fits(parts, 5) == "fleetchat · A model"
