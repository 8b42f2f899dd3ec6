"""What the model sees of a chat, and what is said of the rest."""

from __future__ import annotations

import itertools

import pytest

from fleetchat.chat.messages import Role
from fleetchat.chat.tree import MessageId, Node, Status
from fleetchat.chat.turn import messages_of, unanswered

ENDED = [status for status in Status if status is not Status.WRITING]


def path_of(*replies: tuple[str, Status] | None) -> list[Node]:
    """Questions `q0`, `q1`, …, each with a reply; None: not even begun."""
    nodes: list[Node] = []
    for turn, reply in enumerate(replies):
        nodes.append(Node(MessageId(2 * turn), None, Role.USER, f"q{turn}", 0.0))
        if reply is not None:
            nodes.append(Node(MessageId(2 * turn + 1), None, Role.ASSISTANT, reply[0], 0.0, reply[1]))
    return nodes


@pytest.mark.parametrize("status", ENDED)
def test_an_empty_reply_leaves_its_question_out(status: Status) -> None:
    path = path_of(("", status))
    assert unanswered(path) == {0}
    path = path_of(("", status), ("an answer", Status.COMPLETE), None)
    assert unanswered(path) == {0}
    assert [message.content for message in messages_of(path, "")] == ["q1", "an answer", "q2"]


@pytest.mark.parametrize("status", Status)
def test_a_reply_with_text_answers_however_it_ended(status: Status) -> None:
    assert unanswered(path_of(("half", status), ("", Status.WRITING))) == frozenset()


def test_what_is_told_is_what_is_left_out() -> None:
    outcomes = (None, ("", Status.FAILED), ("", Status.INTERRUPTED), ("text", Status.STOPPED))
    for replies in itertools.product(outcomes, repeat=3):
        path = path_of(*replies, None)
        seen = [message.content for message in messages_of(path, "")]
        missing = [node.text for node in path if node.role is Role.USER and node.text not in seen]
        assert missing == [node.text for node in path if node.id in unanswered(path)]
        assert seen[-1] == "q3"
        roles = [message.role for message in messages_of(path, "")]
        assert roles == [Role.USER, Role.ASSISTANT] * (len(roles) // 2) + [Role.USER]
