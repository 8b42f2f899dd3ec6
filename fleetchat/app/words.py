"""Figures and states in words (pure). No state is told by colour alone."""

from __future__ import annotations

from enum import Enum

from fleetchat.app.chat_state import ChatState
from fleetchat.chat.tree import Figures, Node, Status


class Phase(Enum):
    """Where the program is; the value is what the header says."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    LEAVING = "leaving"


TITLES = {
    Phase.STARTING: "The fleet is starting · you may type already",
    Phase.READY: "Message",
    Phase.FAILED: "The fleet is not running · Enter shows why",
    Phase.LEAVING: "Leaving …",
}


def prompt_title(phase: Phase, state: ChatState) -> str:
    """What stands on the frame of a chat's prompt."""
    if phase is Phase.LEAVING:
        return TITLES[phase]
    if state.queued:
        moment = "this reply is complete" if state.writing is not None else "the fleet is ready"
        return f"Sent when {moment} · Esc takes it back"
    if state.writing is None:
        if state.editing is not None:
            return "Editing your message · Enter sends it as a new branch · Esc leaves it"
        return TITLES[phase]
    if state.prefill is not None:
        done, total = state.prefill
        return f"Reading the prompt, {done:,} of {counted(total, 'token')} · Esc stops"
    return "Writing · Esc stops"


CHARACTERS_A_TOKEN = 4  # of English text, roughly


def context_words(state: ChatState, typed: str, context: int) -> str:
    """How much of the context the chat takes, what is being typed estimated: `about 1,204 of 2,048 tokens`.

    The fleet counted what was said up to the last reply; what an edit replaces is none of it. Nothing is
    said of a chat that has just begun.
    """
    before = state.tree.path(state.continues)
    said = next((node.figures for node in reversed(before) if node.figures.prompt_tokens), None)
    used = said.prompt_tokens + said.tokens if said is not None else 0
    typing = len(typed) // CHARACTERS_A_TOKEN
    if not context or not used + typing > context // 20:
        return ""
    about = "about " if typing else ""
    return f"{about}{used + typing:,} of {counted(context, 'token')}"


def header_state(phase: Phase, writing: int, tokens_per_s: float, *, trouble: bool = False) -> str:
    """The state of the whole program: `2 chats writing 34.2 tokens/s`. In `trouble` a stage is lost."""
    if phase is Phase.READY and trouble:
        return "bringing the fleet back"
    if phase is not Phase.READY or not writing:
        return phase.value
    words = "writing" if writing == 1 else f"{writing} chats writing"
    return f"{words} {tokens_per_s:6.1f} tokens/s" if tokens_per_s > 0 else words


def counted(number: int, noun: str) -> str:
    """`1 token`, `2,048 tokens`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def finish_words(node: Node, context: int) -> str:
    """Why a reply ended. `context` is the number of tokens that the fleet holds for a chat."""
    match node.status:
        case Status.COMPLETE:
            return "finished"
        case Status.LENGTH:
            return length_words(node.figures)
        case Status.CONTEXT:
            return f"the context of {counted(context, 'token')} is full; start a new chat (Ctrl+N)"
        case Status.STOPPED:
            return "stopped by you"
        case Status.INTERRUPTED:
            return "interrupted: the program ended while this was written"
        case Status.FAILED:
            return error_words(node.error)
        case Status.WRITING:
            return "being written"


def length_words(figures: Figures) -> str:
    """Each continuation may write as many tokens as a reply."""
    if figures.added:
        return f"cut again, at the limit of {counted(figures.added, 'token')} at a time"
    return f"cut at the limit of {counted(figures.tokens, 'token')} a reply"


def error_words(error: tuple[str, str] | None) -> str:
    message, hint = error or ("no cause was given", "")
    return f"failed: {message}\nhint: {hint}" if hint else f"failed: {message}"


def reply_figures(figures: Figures) -> str:
    """Size and speed of a reply; nothing for a reply of which no token came."""
    if not figures.tokens:
        return ""
    parts = [counted(figures.tokens, "token")]
    if figures.tokens_per_s > 0:
        parts.append(f"{figures.tokens_per_s:.1f} tokens/s")
    if figures.ttft_ms > 0:
        parts.append(f"first token after {figures.ttft_ms / 1000:.2f} s")
    return " · ".join([*parts, *drafting_figures(figures)])


def drafting_figures(figures: Figures) -> list[str]:
    """What speculation and faults did for the reader; the panel has the rest of it."""
    parts = []
    if figures.accepted:
        parts.append(f"{figures.accepted:,} of {figures.drafted:,} guesses right")
    if figures.recoveries:
        parts.append(f"{figures.recoveries} recoveries" if figures.recoveries > 1 else "1 recovery")
    return parts


def reply_footer(node: Node, context: int) -> str:
    """What stands below a reply: one line, for a failure two more, and a line for each note."""
    separator = "\n" if node.status is Status.FAILED else " · "
    parts = (reply_figures(node.figures), finish_words(node, context))
    return "\n".join(
        [separator.join(part for part in parts if part), *(f"note: {note}" for note in node.notes)]
    )


UNANSWERED = "not answered: later replies are written without this message"


def progress_line(step: str, done: int, total: int, width: int) -> str:
    """`step  ████░░░░  45 %` in at most `width` cells; without a bar when the end is not known."""
    if total <= 0:
        return f"{step} …"
    share = min(max(done / total, 0.0), 1.0)
    cells = max(0, min(30, width - len(step) - 9))
    filled = round(share * cells)
    bar = "█" * filled + "░" * (cells - filled)
    return f"{step}  {bar}  {share * 100:3.0f} %" if cells >= 5 else f"{step}  {share * 100:.0f} %"
