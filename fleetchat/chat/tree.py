"""The messages of a chat as a tree: every message names the one before it (pure).

Editing an earlier message, regenerating a reply and two programs in one chat are one thing: two
messages with the same parent. What is shown is the path from the root to one message, the head.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from fleetchat.chat.messages import Role

MessageId = NewType("MessageId", int)


def new_message_id() -> MessageId:
    """63 random bits: two programs that write to one store never choose the same."""
    return MessageId(secrets.randbits(63))


class Status(StrEnum):
    """How a message came to its end."""

    COMPLETE = "complete"
    LENGTH = "length"  # the limit of tokens a reply
    CONTEXT = "context"  # the context was full
    STOPPED = "stopped"  # by the user
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # the program ended in mid-reply
    WRITING = "writing"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a reply cost.

    `tokens` of the whole reply and `prompt_tokens` before it together are what the context held at its end.
    `added` are those of its last continuation, 0 when it was written in one go.
    """

    tokens: int = 0
    added: int = 0
    tokens_per_s: float = 0.0
    ttft_ms: float = 0.0
    prompt_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    rollbacks: int = 0
    compactions: int = 0
    recoveries: int = 0

    def after(self, before: Figures) -> Figures:
        """Of a reply gone on with: `self` is the continuation, whose prompt ended with the reply so far.

        The speed is that of all tokens, each part at its own.
        """
        if not self.tokens:
            return before
        parts = [part for part in (before, self) if part.tokens and part.tokens_per_s > 0]
        seconds = sum(part.tokens / part.tokens_per_s for part in parts)
        return Figures(
            tokens=before.tokens + self.tokens,
            added=self.tokens,
            tokens_per_s=sum(part.tokens for part in parts) / seconds if parts else 0.0,
            ttft_ms=before.ttft_ms or self.ttft_ms,
            prompt_tokens=max(0, self.prompt_tokens - before.tokens),
            drafted=before.drafted + self.drafted,
            accepted=before.accepted + self.accepted,
            rollbacks=before.rollbacks + self.rollbacks,
            compactions=before.compactions + self.compactions,
            recoveries=before.recoveries + self.recoveries,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One message. `text` is exactly what was typed or generated; it is sanitised where it is shown.

    `token_ids` are what `model` generated; they enter later prompts of the same model as they are.
    """

    id: MessageId
    parent: MessageId | None
    role: Role
    text: str
    created: float  # seconds since 1970
    status: Status = Status.COMPLETE
    token_ids: tuple[int, ...] | None = None
    model: str = ""
    seed: int | None = None
    figures: Figures = field(default_factory=Figures)
    error: tuple[str, str] | None = None  # message, hint
    notes: tuple[str, ...] = ()


class MessageTree:
    """All messages of one chat, in the order in which they were added."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[MessageId, Node] = {}
        self._children: dict[MessageId | None, list[MessageId]] = {}
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._nodes

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def put(self, node: Node) -> None:
        """Add a message, or replace the one with the same id."""
        if node.id not in self._nodes:
            self._children.setdefault(node.parent, []).append(node.id)
        self._nodes[node.id] = node

    def remove(self, node_id: MessageId) -> None:
        """Take a message without children away."""
        if self._children.get(node_id):
            raise ValueError("the message has others below it")
        node = self._nodes.pop(node_id)
        self._children[node.parent].remove(node_id)

    def node(self, node_id: MessageId) -> Node:
        return self._nodes[node_id]

    def has_children(self, node_id: MessageId) -> bool:
        return bool(self._children.get(node_id))

    def path(self, head: MessageId | None) -> tuple[Node, ...]:
        """From the root to `head`. A parent that is missing counts as none."""
        path: list[Node] = []
        seen: set[MessageId] = set()
        while head is not None and head in self._nodes and head not in seen:
            seen.add(head)
            path.append(self._nodes[head])
            head = path[-1].parent
        return tuple(reversed(path))

    def versions(self, node_id: MessageId) -> tuple[MessageId, ...]:
        """All messages that answer to the same parent, the given one included."""
        return tuple(self._children[self._nodes[node_id].parent])

    def newest_below(self, node_id: MessageId) -> MessageId:
        """The leaf that is reached by always taking the newest child."""
        seen = {node_id}
        while children := [child for child in self._children.get(node_id, []) if child not in seen]:
            node_id = children[-1]
            seen.add(node_id)
        return node_id

    def newest(self) -> MessageId | None:
        """The message that was added last."""
        return next(reversed(self._nodes), None)
