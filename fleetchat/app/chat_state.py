"""One chat as the screen knows it: its messages, its reply under way, its marks. No widget in here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from fleetchat.app.events import ChatNumber
from fleetchat.app.tab_strip import Mark, TabLabel
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.tree import Figures, MessageId, MessageTree, Node, Status, new_message_id
from fleetchat.chat.turn import Turn, messages_of
from fleetchat.fleet.telemetry import Answer, FinishReason

NEW_TITLE = "New chat"
TITLE_LENGTH = 60  # characters taken from the first message

STATUS_OF = {
    FinishReason.STOP: Status.COMPLETE,
    FinishReason.LENGTH: Status.LENGTH,
    FinishReason.CONTEXT: Status.CONTEXT,
    FinishReason.CANCELLED: Status.STOPPED,
    FinishReason.ERROR: Status.FAILED,
}


@dataclass(slots=True)
class ChatState:
    """`number` is this run's name for the chat. `head` is the message that is shown last."""

    number: ChatNumber
    title: str = ""
    tree: MessageTree = field(default_factory=MessageTree)
    head: MessageId | None = None
    options: ChatOptions = field(default_factory=ChatOptions)
    writing: MessageId | None = None
    queued: bool = False  # what stands in the prompt is sent when it can be
    unread: bool = False
    failed: bool = False
    tokens_per_s: float = 0.0
    prefill: tuple[int, int] | None = None  # tokens read, of how many

    @property
    def path(self) -> tuple[Node, ...]:
        return self.tree.path(self.head)

    @property
    def shown_title(self) -> str:
        return self.title or NEW_TITLE

    @property
    def label(self) -> TabLabel:
        return TabLabel(self.number, self.shown_title, self._mark(), self.tokens_per_s)

    def _mark(self) -> Mark:
        if self.writing is not None:
            return Mark.WRITING
        if self.queued:
            return Mark.WAITING
        if self.failed:
            return Mark.FAILED
        return Mark.UNREAD if self.unread else Mark.NONE

    def looked_at(self) -> None:
        """The user sees the chat now."""
        self.unread = False
        self.failed = False

    def ask(self, text: str, now: float) -> Node:
        """A message of the user, below the head."""
        node = Node(new_message_id(), self.head, Role.USER, text, now)
        self._put_head(node)
        if not self.title:
            self.title = title_of(text)
        return node

    def begin_reply(self, model: str, now: float) -> Node:
        """An empty reply, below the head."""
        node = Node(new_message_id(), self.head, Role.ASSISTANT, "", now, Status.WRITING, model=model)
        self._put_head(node)
        self.writing = node.id
        self.failed = False
        return node

    def take(self, text: str) -> Node | None:
        """The next piece of the reply under way; None when there is none."""
        if self.writing is None:
            return None
        node = self.tree.node(self.writing)
        node = dataclasses.replace(node, text=node.text + text)
        self.tree.put(node)
        self.prefill = None
        return node

    def finish(self, answer: Answer, *, seen: bool) -> Node | None:
        """The reply is complete. `seen`: the user looks at this chat."""
        if self.writing is None:
            return None
        node = finished_node(self.tree.node(self.writing), answer)
        self.tree.put(node)
        self.writing, self.prefill, self.tokens_per_s = None, None, 0.0
        self.unread = not seen
        self.failed = not seen and node.status is Status.FAILED
        return node

    def abandon(self) -> Node | None:
        """The reply under way ends here, with the text that came."""
        if self.writing is None:
            return None
        node = dataclasses.replace(self.tree.node(self.writing), status=Status.STOPPED)
        self.tree.put(node)
        self.writing, self.prefill, self.tokens_per_s = None, None, 0.0
        return node

    def turn(self) -> Turn:
        """What to ask for the reply under way."""
        reply = self.tree.node(self.writing) if self.writing is not None else None
        before = self.path[:-1] if reply is not None else self.path
        return Turn(messages_of(before, reply.model if reply else ""), self.options)

    def _put_head(self, node: Node) -> None:
        self.tree.put(node)
        self.head = node.id


def finished_node(node: Node, answer: Answer) -> Node:
    """A reply with what the fleet said in the end."""
    return dataclasses.replace(
        node,
        text=answer.text or node.text,
        status=STATUS_OF[answer.finish_reason],
        token_ids=answer.token_ids or None,
        seed=answer.seed,
        figures=figures_of(answer),
        error=answer.error,
        notes=answer.notes,
    )


def figures_of(answer: Answer) -> Figures:
    """What of an answer is kept."""
    return Figures(
        tokens=answer.completion_tokens,
        tokens_per_s=answer.tokens_per_s,
        ttft_ms=answer.ttft_ms,
        prompt_tokens=answer.prompt_tokens,
        drafted=answer.speculation.drafted,
        accepted=answer.speculation.accepted,
        rollbacks=answer.speculation.rollbacks,
        compactions=answer.speculation.compactions,
        recoveries=len(answer.recoveries),
    )


def title_of(text: str) -> str:
    """A chat's title from its first message: its first line."""
    line = " ".join(text.strip().split("\n", 1)[0].split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
