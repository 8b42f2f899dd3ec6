"""Answers that are written at the same time reach stdout one after the other.

The first conversation that has not ended streams; what the others say waits for its turn.
"""

from __future__ import annotations

from collections.abc import Callable

from fleetchat.cli.ask_output import AnswerWriter


class OrderedAnswers:
    """Hands out one `AnswerStream` a conversation; `writer` None drops everything (for --json)."""

    def __init__(self, writer: AnswerWriter | None, conversations: int) -> None:
        self._writer = writer
        self._waiting: list[list[Callable[[AnswerWriter], None]]] = [[] for _ in range(conversations)]
        self._ended = [False] * conversations
        self._current = 0
        self._answers = 0

    def stream(self, conversation: int) -> AnswerStream:
        return AnswerStream(self, conversation)

    def add(self, conversation: int, action: Callable[[AnswerWriter], None]) -> None:
        """Do `action` when it is that conversation's turn."""
        if self._writer is None:
            return
        if conversation == self._current:
            action(self._writer)
        else:
            self._waiting[conversation].append(action)

    def then(self, conversation: int, action: Callable[[], None]) -> None:
        """Do `action` when it is that conversation's turn and all before it is written."""
        if self._writer is None:
            action()
        else:
            self.add(conversation, lambda writer: writer.then(action))

    def end(self, conversation: int) -> None:
        """Nothing more comes from that conversation."""
        self._ended[conversation] = True
        while self._current < len(self._ended) and self._ended[self._current]:
            self._current += 1
            if self._current < len(self._ended):
                self._release(self._current)

    def begin_answer(self, writer: AnswerWriter) -> None:
        if self._answers:
            writer.separate()
        self._answers += 1

    def _release(self, conversation: int) -> None:
        actions, self._waiting[conversation] = self._waiting[conversation], []
        for action in actions:
            self.add(conversation, action)


class AnswerStream:
    """What one conversation says."""

    def __init__(self, order: OrderedAnswers, conversation: int) -> None:
        self._order = order
        self._conversation = conversation

    def begin_answer(self) -> None:
        self._order.add(self._conversation, self._order.begin_answer)

    def put(self, text: str) -> None:
        self._order.add(self._conversation, lambda writer: writer.put(text))

    def end_answer(self) -> None:
        self._order.add(self._conversation, AnswerWriter.end_answer)

    def then(self, action: Callable[[], None]) -> None:
        """Do `action` when all that the conversation has said is written; at once where nothing is."""
        self._order.then(self._conversation, action)

    def end(self) -> None:
        self._order.end(self._conversation)
