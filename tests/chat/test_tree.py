from __future__ import annotations

import pytest

from fleetchat.chat.messages import Message, Role
from fleetchat.chat.tree import MessageId, MessageTree, Node
from fleetchat.chat.turn import Turn, messages_of


def node(number: int, parent: int | None, text: str = "x", role: Role | None = None) -> Node:
    guessed = Role.USER if number % 2 else Role.ASSISTANT
    above = None if parent is None else MessageId(parent)
    return Node(MessageId(number), above, role or guessed, text, 0.0, model="m", token_ids=(number,))


BRANCHED = MessageTree([node(1, None), node(2, 1), node(3, 2), node(4, 3), node(13, 2), node(14, 13)])


def ids(path: tuple[Node, ...]) -> list[int]:
    return [one.id for one in path]


def test_a_path_leads_from_the_root_to_the_head() -> None:
    assert ids(BRANCHED.path(MessageId(4))) == [1, 2, 3, 4]
    assert ids(BRANCHED.path(MessageId(14))) == [1, 2, 13, 14]
    assert BRANCHED.path(None) == ()


def test_versions_share_a_parent_and_the_newest_leaf_is_found() -> None:
    assert BRANCHED.versions(MessageId(3)) == (3, 13)
    assert BRANCHED.newest_below(MessageId(1)) == 14
    assert BRANCHED.newest_below(MessageId(3)) == 4
    assert BRANCHED.newest() == 14


def test_damaged_trees_end_nowhere_else() -> None:
    assert ids(MessageTree([node(2, 1)]).path(MessageId(2))) == [2]
    circle = MessageTree([node(1, 2), node(2, 1)])
    assert ids(circle.path(MessageId(2))) == [1, 2]
    assert circle.newest_below(MessageId(1)) == 2


def test_only_leaves_are_removed() -> None:
    tree = MessageTree([node(1, None), node(2, 1)])
    with pytest.raises(ValueError, match="others below it"):
        tree.remove(MessageId(1))
    tree.remove(MessageId(2))
    assert tree.newest_below(MessageId(1)) == 1
    assert len(tree) == 1


def test_replies_enter_as_their_ids_for_the_same_model_only() -> None:
    path = BRANCHED.path(MessageId(3))
    assert messages_of(path, "m")[1] == Message(Role.ASSISTANT, "x", (2,))
    assert messages_of(path, "other")[1] == Message(Role.ASSISTANT, "x", None)


def test_questions_without_an_answer_are_left_out_but_for_the_last() -> None:
    failed = [node(1, None, "lost"), node(2, 1, ""), node(3, 2, "interrupted"), node(5, 3, "now")]
    assert [message.content for message in messages_of(failed, "m")] == ["now"]


def test_a_turn_knows_its_prompt_and_its_number() -> None:
    turn = Turn(messages_of(BRANCHED.path(MessageId(3)), "m"))
    assert (turn.prompt, turn.number) == ("x", 1)
