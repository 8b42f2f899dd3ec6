from __future__ import annotations

import json
from typing import Any

import pytest

from fleetchat.chat.export import as_json, as_markdown, import_chats, with_fences_closed
from fleetchat.chat.history import ChatId, StoredChat
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.tree import MessageId, MessageTree, Node, Status
from fleetchat.errors import InputError


def node(number: int, parent: int | None, text: str, status: Status = Status.COMPLETE) -> Node:
    above = None if parent is None else MessageId(parent)
    if number % 2:
        return Node(MessageId(number), above, Role.USER, text, float(number))
    return Node(MessageId(number), above, Role.ASSISTANT, text, float(number), status, model="Tiny")


CHAT = StoredChat(
    id=ChatId(1),
    title="A\nchat",
    created=86400.0,
    options=ChatOptions(system="Be brief."),
    head=MessageId(4),
    tree=MessageTree(
        [
            node(1, None, "Hello"),
            node(2, 1, "Hi **you**\x9b"),
            node(3, 2, "More"),
            node(4, 3, "Half", Status.STOPPED),
            node(5, 2, "Other branch"),
        ]
    ),
)


def test_markdown_shows_the_branch_that_was_read_last() -> None:
    assert as_markdown(CHAT) == (
        "# A chat\n\n*1970-01-02 00:00 UTC*\n\n## System\n\nBe brief.\n\n## You\n\nHello\n\n"
        "## Tiny\n\nHi **you**\x9b\n\n## You\n\nMore\n\n## Tiny\n\nHalf\n\n*(stopped)*\n"
    )


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("```py\nx = 1", "\n```"),
        ("```py\nx = 1\n```", ""),
        ("~~~~\n~~~\n```", "\n~~~~"),
        ("- ```\n  a", "\n```"),
        ("> ```\n> a\n> ````", ""),
        ("``` a `b` ```\nno block", ""),
        ("plain", ""),
    ],
)
def test_a_code_block_that_broke_off_ends_with_its_reply(text: str, added: str) -> None:
    assert with_fences_closed(text) == text + added


def test_json_comes_back_whole_under_new_ids() -> None:
    text = as_json([CHAT, CHAT])
    assert "\x9b" not in text
    first, second = import_chats(text, "x.json")
    assert first.id != second.id
    assert {one.id for one in first.tree}.isdisjoint(one.id for one in CHAT.tree)
    assert [one.text for one in first.tree] == [one.text for one in CHAT.tree]
    assert [one.text for one in first.tree.path(first.head)] == ["Hello", "Hi **you**\x9b", "More", "Half"]
    assert (first.title, first.options) == (CHAT.title, CHAT.options)
    assert json.loads(as_json([first]))["chats"][0]["messages"][3]["status"] == "stopped"


def changed(**changes: Any) -> str:
    document = json.loads(as_json([CHAT]))
    document["chats"][0]["messages"][1].update(changes)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "x.json is not JSON"),
        ("[" * 100_000, "x.json is not JSON"),
        ("[]", "x.json is not an export of fleetchat"),
        ('{"format": "fleetchat-chats", "version": 9}', "has version 9, this fleetchat reads 1"),
        ('{"format": "fleetchat-chats", "version": 1}', "x.json: chats must be a list"),
        (changed(text=5), "x.json: chat 1: message 2: text must be a text"),
        (changed(role="root"), "x.json: chat 1: message 2: role must be one of user, assistant"),
        (changed(parent=99), "x.json: chat 1: message 2: parent 99 does not come before it"),
        (changed(parent=[]), "does not come before it"),
        (changed(id=1), "x.json: chat 1: message 2: id 1 comes twice"),
        (changed(created="now"), "x.json: chat 1: message 2: created must be seconds since 1970"),
        (changed(status="fine"), "status must be one of complete"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        import_chats(text, "x.json")
