"""One chat as the screen knows it: its messages, its reply under way, its marks. No widget in here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from fleetchat.app.events import ChatNumber
from fleetchat.app.tab_strip import Mark, TabLabel
from fleetchat.chat.history import ChatId, StoredChat, new_chat_id
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.tree import Figures, MessageId, MessageTree, Node, Status, new_message_id
from fleetchat.chat.turn import Turn, messages_of
from fleetchat.fleet.resumption import MOVED
from fleetchat.fleet.telemetry import Answer, FinishReason

NEW_TITLE = "New chat"
NOTHING_ADDED = "the model has nothing to add: this reply is complete"
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
    id: ChatId = field(default_factory=new_chat_id)  # in the store
    stored: bool = False  # an empty chat is not stored
    title: str = ""
    tree: MessageTree = field(default_factory=MessageTree)
    head: MessageId | None = None
    options: ChatOptions = field(default_factory=ChatOptions)
    writing: MessageId | None = None
    continued: Node | None = None  # the reply under way as it was before it was continued
    editing: MessageId | None = None  # the message that the prompt's text replaces, in a new branch
    draft: str = ""  # what stood in the prompt when its tab was closed, or the program left
    queued: bool = False  # what stands in the prompt is sent when it can be
    unread: bool = False
    failed: bool = False
    tokens_per_s: float = 0.0
    prefill: tuple[int, int] | None = None  # tokens read, of how many

    @classmethod
    def restored(cls, number: ChatNumber, chat: StoredChat) -> ChatState:
        """A chat from the store. Nothing in it is being written, whatever another program does."""
        tree = MessageTree(_at_rest(node) for node in chat.tree)
        head = chat.head if chat.head is not None and chat.head in tree else tree.newest()
        return cls(number, chat.id, True, chat.title, tree, head, chat.options)

    @property
    def path(self) -> tuple[Node, ...]:
        return self.tree.path(self.head)

    @property
    def continues(self) -> MessageId | None:
        """What the next message is put below: the head, or what stands before the message that is edited."""
        if self.editing is not None and self.editing in self.tree:
            return self.tree.node(self.editing).parent
        return self.head

    @property
    def is_unused(self) -> bool:
        """Nothing was said or set here."""
        return not len(self.tree) and not self.title and self.options == ChatOptions()

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
        """A message of the user, below the head, or beside the message that is edited."""
        self.head, self.editing = self.continues, None
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

    def regenerate(self, node: Node, model: str, now: float) -> tuple[Node, Node | None]:
        """Another reply to the message that `node` is, or answers. Returns it, and an empty one that went."""
        gone = None
        if node.role is Role.USER:
            self.head = node.id
        else:
            self.head = node.parent
            if not node.text and not self.tree.has_children(node.id):
                self.tree.remove(node.id)
                gone = node
        return self.begin_reply(model, now), gone

    def begin_continuation(self, model: str) -> Node:
        """Go on with the reply at the head."""
        assert self.head is not None
        before = self.tree.node(self.head)
        ids = before.token_ids if before.model == model else None
        self.continued = dataclasses.replace(before, token_ids=ids)
        # Without ids: what is saved while it grows has more text than the ids it began with.
        fresh: dict[str, Any] = {"model": model, "token_ids": None, "error": None, "notes": ()}
        node = dataclasses.replace(self.continued, status=Status.WRITING, **fresh)
        self._put_head(node)
        self.writing = node.id
        self.failed = False
        return node

    def show_next_version(self, node: Node) -> None:
        """The branch of the next message that answers to the same parent."""
        versions = self.tree.versions(node.id)
        chosen = versions[(versions.index(node.id) + 1) % len(versions)]
        self.head = self.tree.newest_below(chosen)

    def version_words(self, node: Node) -> str:
        """`2 of 3` for a message with other versions, else nothing."""
        versions = self.tree.versions(node.id)
        return f"{versions.index(node.id) + 1} of {len(versions)}" if len(versions) > 1 else ""

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
        node = finished_node(self.tree.node(self.writing), answer, self.continued)
        self._end(node)
        self.unread = not seen
        self.failed = not seen and node.status is Status.FAILED
        return node

    def abandon(self) -> Node | None:
        """The reply under way ends here, with the text that came."""
        if self.writing is None:
            return None
        node = dataclasses.replace(self.tree.node(self.writing), status=Status.STOPPED)
        self._end(node)
        return node

    def _end(self, node: Node) -> None:
        self.tree.put(node)
        self.writing, self.continued, self.prefill, self.tokens_per_s = None, None, None, 0.0

    def turn(self, *, another: bool = False) -> Turn:
        """What to ask for the reply under way; `another` takes a seed that was not used before."""
        assert self.writing is not None
        path = self.tree.path(self.writing)
        continues = self.continued is not None
        before = (*path[:-1], self.continued) if self.continued is not None else path[:-1]
        messages = messages_of(before, path[-1].model)
        return Turn(messages, self.options, continues=continues, another=another)

    def _put_head(self, node: Node) -> None:
        self.tree.put(node)
        self.head = node.id


def _at_rest(node: Node) -> Node:
    return dataclasses.replace(node, status=Status.INTERRUPTED) if node.status is Status.WRITING else node


def finished_node(node: Node, answer: Answer, continued: Node | None) -> Node:
    """A reply with what the fleet said in the end. `continued` is its beginning, of an earlier turn."""
    figures, notes = figures_of(answer), answer.notes
    text, ids = answer.text, answer.token_ids or None
    if continued is not None:
        text = continued.text + text
        ids = (*continued.token_ids, *answer.token_ids) if continued.token_ids is not None else None
        figures = figures.after(continued.figures)
        if not answer.token_ids and answer.finish_reason is FinishReason.STOP:
            notes = (*notes, NOTHING_ADDED)
    return dataclasses.replace(
        node,
        text=text or node.text,
        status=STATUS_OF[answer.finish_reason],
        token_ids=ids,
        seed=answer.seed,
        figures=figures,
        error=answer.error,
        notes=notes,
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
        recoveries=sum(one["cause"] != MOVED for one in answer.recoveries),
    )


def title_of(text: str) -> str:
    """A chat's title from its first message: its first line."""
    line = " ".join(text.strip().split("\n", 1)[0].split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
