"""What a chat sets for itself, in words (pure)."""

from __future__ import annotations

from fleetchat.chat.options import CHECKS, ChatOptions

LONGEST = 60  # characters of a value that are shown
UNSET = {"system": "none", "seed": "another for each reply"}  # what an option means that nobody configured


def value_words(value: object) -> str:
    """`0.2`, `0`, `none`; a long text is cut, and is one line."""
    text = " ".join((f"{value:g}" if isinstance(value, float) else str(value)).split())
    if not text:
        return "none"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"


def changed_words(options: ChatOptions, name: str) -> str:
    """What became of one option: `temperature: 0`."""
    value = getattr(options, name)
    return f"{name}: {'as configured' if value is None else value_words(value)}"


def options_words(own: ChatOptions, configured: ChatOptions | None) -> str:
    """What is set and what applies else; `configured` None: that is not known yet."""
    set_here = own.stored()
    ours = ", ".join(f"{name} {value_words(value)}" for name, value in set_here.items())
    others = ", ".join(_configured_words(name, configured) for name in CHECKS if name not in set_here)
    return (
        f"This chat sets {ours or 'nothing'}. As configured: {others or 'nothing'}.\n"
        "/set NAME VALUE changes one, /set NAME default unsets it."
    )


def _configured_words(name: str, configured: ChatOptions | None) -> str:
    if configured is None:
        return name
    value = getattr(configured, name)
    return f"{name} {UNSET.get(name, 'none') if value is None else value_words(value)}"
