"""What is asked in which order (pure): conversations from `--prompt`, `--then` and stdin, and their seeds."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from fleetchat.errors import InputError, PromptError

STDIN = "-"
SEED_BITS = 63


class Asked(Enum):
    """How a text entered the command line."""

    PROMPT = "--prompt"
    THEN = "--then"


class Entry(NamedTuple):
    """One text of the command line, in its place."""

    kind: Asked
    text: str


Conversation = tuple[str, ...]  # the turns of one session


def plan_conversations(entries: Sequence[Entry], read_stdin: Callable[[], str]) -> tuple[Conversation, ...]:
    """The turns of every session. Without any prompt the first one is read from stdin, as for `-`.

    Raises InputError when `--then` stands before the first prompt or stdin is asked for twice,
    PromptError for an empty prompt.
    """
    if all(entry.kind is Asked.THEN for entry in entries):
        entries = [Entry(Asked.PROMPT, STDIN), *entries]
    if entries[0].kind is Asked.THEN:
        raise InputError(
            "--then stands before the first prompt", hint="put it behind the prompt that it continues"
        )
    if sum(entry.text == STDIN for entry in entries) > 1:
        raise InputError("stdin can be read for one prompt only")
    conversations: list[list[str]] = []
    for number, entry in enumerate(entries, start=1):
        text = without_last_newline(read_stdin()) if entry.text == STDIN else entry.text
        if not text.strip():
            raise PromptError(_empty(entry, number, len(entries)))
        if entry.kind is Asked.PROMPT:
            conversations.append([])
        conversations[-1].append(text)
    return tuple(map(tuple, conversations))


def without_last_newline(text: str) -> str:
    """What `echo` added is not part of a prompt."""
    return text.removesuffix("\n").removesuffix("\r")


def _empty(entry: Entry, number: int, entries: int) -> str:
    read = " (read from stdin)" if entry.text == STDIN else ""
    return f"the prompt is empty{read}" if entries == 1 else f"prompt {number} of {entries} is empty{read}"


def turn_seed(base: int | None, turn: int) -> int:
    """`base` + turn (from 0); without a base 63 random bits."""
    return secrets.randbits(SEED_BITS) if base is None else base + turn
