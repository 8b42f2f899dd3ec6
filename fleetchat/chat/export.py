"""Chats as files: Markdown for people, JSON for programs and for `import_chats` (pure).

Token ids are left out: they are of use only to the model that wrote them, and a reply without them is
encoded from its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from fleetchat.chat.history import StoredChat, new_chat_id
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.tree import MessageId, MessageTree, Node, Status, new_message_id
from fleetchat.errors import InputError

FORMAT = "fleetchat-chats"
VERSION = 1
FENCE = re.compile(r"^(?:[ >]|[-*+] |\d+[.)] )*(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
C1 = re.compile("[\x7f-\x9f]")
AUTHORS = {Role.USER: "You", Role.ASSISTANT: "Assistant", Role.SYSTEM: "System"}


def as_markdown(chat: StoredChat) -> str:
    """The branch that was read last, as one document."""
    lines = [f"# {_one_line(chat.title) or 'Chat'}", "", f"*{_moment(chat.created)}*", ""]
    if chat.options.system:
        lines += ["## System", "", chat.options.system, ""]
    for node in chat.tree.path(chat.head or chat.tree.newest()):
        author = node.model if node.role is Role.ASSISTANT and node.model else AUTHORS[node.role]
        lines += [f"## {_one_line(author)}", "", with_fences_closed(node.text.strip("\n")), ""]
        if node.status not in (Status.COMPLETE, Status.WRITING):
            lines += [f"*({node.status.value})*", ""]
    return "\n".join(lines)


def with_fences_closed(text: str) -> str:
    """A reply that broke off inside a code block must not make code of all that follows it."""
    opened = ""
    for line in text.split("\n"):
        found = FENCE.match(line)
        if found is None:
            continue
        fence, info = found["fence"], found["info"].strip()
        if not opened:
            opened = "" if fence[0] == "`" and "`" in info else fence
        elif fence.startswith(opened) and not info:
            opened = ""
    return f"{text}\n{opened}" if opened else text


def as_json(chats: Iterable[StoredChat]) -> str:
    """All branches of all chats."""
    document = {"format": FORMAT, "version": VERSION, "chats": [_chat(chat) for chat in chats]}
    return json_text(document)


def json_text(document: object) -> str:
    """JSON that is readable and safe on a terminal: C1 controls are escaped as C0 ones are."""
    text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    return C1.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _chat(chat: StoredChat) -> dict[str, Any]:
    return {
        "title": chat.title,
        "created": chat.created,
        "options": chat.options.stored(),
        "head": chat.head,
        "messages": [_message(node) for node in chat.tree],
    }


def _message(node: Node) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": node.id,
        "parent": node.parent,
        "role": node.role.value,
        "text": node.text,
        "created": node.created,
        "status": node.status.value,
    }
    if node.role is Role.ASSISTANT:
        message |= {"model": node.model, "seed": node.seed, "figures": asdict(node.figures)}
    return message


def import_chats(text: str, origin: str) -> list[StoredChat]:
    """The chats of an exported file, under new ids. Raises InputError naming the place."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(
            f"{origin} is not an export of fleetchat", hint="make one: fleetchat chats export --json"
        )
    if document.get("version") != VERSION:
        raise InputError(f"{origin} has version {document.get('version')!r}, this fleetchat reads {VERSION}")
    chats = _of_kind(document.get("chats"), list, f"{origin}: chats")
    return [_imported(chat, f"{origin}: chat {number}") for number, chat in enumerate(chats, start=1)]


def _imported(table: object, place: str) -> StoredChat:
    chat = _of_kind(table, dict, place)
    messages = _of_kind(chat.get("messages"), list, f"{place}: messages")
    ids: dict[int, MessageId] = {}
    tree = MessageTree()
    for number, message in enumerate(messages, start=1):
        tree.put(_imported_node(message, ids, f"{place}: message {number}"))
    return StoredChat(
        id=new_chat_id(),
        title=_of_kind(chat.get("title"), str, f"{place}: title"),
        created=_seconds(chat.get("created"), f"{place}: created"),
        options=ChatOptions.restored(_of_kind(chat.get("options", {}), dict, f"{place}: options")),
        head=ids.get(head) if isinstance(head := chat.get("head"), int) and head in ids else tree.newest(),
        tree=tree,
    )


def _imported_node(table: object, ids: dict[int, MessageId], place: str) -> Node:
    message: Mapping[str, Any] = _of_kind(table, dict, place)
    old = _of_kind(message.get("id"), int, f"{place}: id")
    parent = message.get("parent")
    if old in ids:
        raise InputError(f"{place}: id {old} comes twice")
    if parent is not None and (not isinstance(parent, int) or parent not in ids):
        raise InputError(f"{place}: parent {parent!r} does not come before it")
    ids[old] = new_message_id()
    return Node(
        id=ids[old],
        parent=None if parent is None else ids[parent],
        role=_word(message.get("role"), (Role.USER, Role.ASSISTANT), f"{place}: role"),
        text=_of_kind(message.get("text"), str, f"{place}: text"),
        created=_seconds(message.get("created"), f"{place}: created"),
        status=_settled(_word(message.get("status", "complete"), tuple(Status), f"{place}: status")),
        model=_of_kind(message.get("model", ""), str, f"{place}: model"),
    )


def _settled(status: Status) -> Status:
    return Status.INTERRUPTED if status is Status.WRITING else status


def _of_kind(value: Any, kind: type, place: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {list: "a list", dict: "a table", str: "a text", int: "a whole number"}
        raise InputError(f"{place} must be {names[kind]}")
    return value


def _word(value: Any, known: tuple[Any, ...], place: str) -> Any:
    if value not in [word.value for word in known]:
        raise InputError(f"{place} must be one of {', '.join(word.value for word in known)}")
    return next(word for word in known if word.value == value)


def _seconds(value: Any, place: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e11:
        raise InputError(f"{place} must be seconds since 1970")
    return float(value)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _one_line(text: str) -> str:
    return " ".join(text.split())
