"""Figures and states in words (pure). No state is told by colour alone."""

from __future__ import annotations

from enum import Enum

from fleetchat.fleet.telemetry import Answer, FinishReason


class Phase(Enum):
    """Where the program is; the value is what the header says."""

    STARTING = "starting"
    READY = "ready"
    WRITING = "writing"
    FAILED = "failed"
    LEAVING = "leaving"


def counted(number: int, noun: str) -> str:
    """`1 token`, `2,048 tokens`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def finish_words(answer: Answer, context: int) -> str:
    """Why a reply ended. `context` is the number of tokens that the fleet holds for a chat."""
    match answer.finish_reason:
        case FinishReason.STOP:
            return "finished"
        case FinishReason.LENGTH:
            return f"cut at the limit of {counted(answer.completion_tokens, 'token')} a reply"
        case FinishReason.CONTEXT:
            return f"the context of {counted(context, 'token')} is full; start a new chat (Ctrl+N)"
        case FinishReason.CANCELLED:
            return "stopped by you"
        case FinishReason.ERROR:
            return error_words(answer.error)


def error_words(error: tuple[str, str] | None) -> str:
    message, hint = error or ("no cause was given", "")
    return f"failed: {message}\nhint: {hint}" if hint else f"failed: {message}"


def reply_figures(answer: Answer) -> str:
    """Size and speed of a reply; nothing for a reply of which no token came."""
    if not answer.completion_tokens:
        return ""
    parts = [counted(answer.completion_tokens, "token")]
    if answer.tokens_per_s > 0:
        parts.append(f"{answer.tokens_per_s:.1f} tokens/s")
    parts.append(f"first token after {answer.ttft_ms / 1000:.2f} s")
    return " · ".join(parts)


def reply_footer(answer: Answer, context: int) -> str:
    """What stands below a reply: one line, and for a failure two more."""
    separator = "\n" if answer.finish_reason is FinishReason.ERROR else " · "
    return separator.join(part for part in (reply_figures(answer), finish_words(answer, context)) if part)


def progress_line(step: str, done: int, total: int, width: int) -> str:
    """`step  ████░░░░  45 %` in at most `width` cells; without a bar when the end is not known."""
    if total <= 0:
        return f"{step} …"
    share = min(max(done / total, 0.0), 1.0)
    cells = max(0, min(30, width - len(step) - 9))
    filled = round(share * cells)
    bar = "█" * filled + "░" * (cells - filled)
    return f"{step}  {bar}  {share * 100:3.0f} %" if cells >= 5 else f"{step}  {share * 100:.0f} %"
