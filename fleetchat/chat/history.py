"""The chat store: SQLite in one file, shared by several programs at once.

Ids are random, every write is one short transaction (WAL, so that readers never wait), and a reply under
way carries the name of the program that writes it: when that program is gone, the reply counts as
interrupted. A `History` belongs to one thread.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NewType

from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.schema import migrate
from fleetchat.chat.search import TRIGRAM, Excerpt, excerpt, like, matching, name_excerpt
from fleetchat.chat.tree import Figures, MessageId, MessageTree, Node, Status, new_message_id
from fleetchat.chat.writers import Writers
from fleetchat.errors import HistoryError, HistoryUnwritable
from fleetchat.paths import unwritable

ChatId = NewType("ChatId", int)

FILE_NAME = "chats.db"
BUSY_TIMEOUT = 5.0  # seconds to wait for another program's write


def new_chat_id() -> ChatId:
    return ChatId(int(new_message_id()))


@dataclass(frozen=True, slots=True)
class ChatSummary:
    id: ChatId
    title: str
    created: float
    updated: float
    messages: int

    @property
    def name(self) -> str:
        """How a person names the chat on the command line."""
        return f"{self.id:016x}"[:8]


@dataclass(frozen=True, slots=True)
class StoredChat:
    id: ChatId
    title: str
    created: float
    options: ChatOptions
    head: MessageId | None
    tree: MessageTree


@dataclass(frozen=True, slots=True)
class Hit:
    """One message that was found; without one it is the name of the chat that was."""

    chat: ChatSummary
    message: MessageId | None
    role: Role | None
    excerpt: Excerpt


class History:
    """Use `open_history`."""

    def __init__(self, connection: sqlite3.Connection, writers: Writers) -> None:
        self._connection = connection
        self._writers = writers

    def close(self) -> None:
        self._writers.close()
        self._connection.close()

    # Chats

    def add_chat(self, chat: ChatId, title: str, created: float, options: ChatOptions) -> None:
        with self._transaction() as run:
            run(
                "INSERT OR IGNORE INTO chats (id, title, created, updated, options) VALUES (?, ?, ?, ?, ?)",
                (chat, _text(title), created, created, json.dumps(options.stored())),
            )

    def rename(self, chat: ChatId, title: str) -> None:
        with self._transaction() as run:
            run("UPDATE chats SET title = ? WHERE id = ?", (_text(title), chat))

    def set_options(self, chat: ChatId, options: ChatOptions) -> None:
        with self._transaction() as run:
            run("UPDATE chats SET options = ? WHERE id = ?", (json.dumps(options.stored()), chat))

    def set_head(self, chat: ChatId, head: MessageId | None) -> None:
        with self._transaction() as run:
            run("UPDATE chats SET head = ? WHERE id = ?", (head, chat))

    def remove_chat(self, chat: ChatId) -> None:
        with self._transaction() as run:
            run("DELETE FROM chats WHERE id = ?", (chat,))

    def chats(self, limit: int = -1) -> list[ChatSummary]:
        """All chats, the one that changed last first."""
        rows = self._connection.execute(f"{_SUMMARIES} ORDER BY updated DESC LIMIT ?", (limit,))
        return [ChatSummary(*row) for row in rows]

    def chat(self, chat: ChatId) -> StoredChat | None:
        """One chat with all its messages; None when it is gone."""
        row = self._connection.execute(
            "SELECT title, created, options, head FROM chats WHERE id = ?", (chat,)
        ).fetchone()
        if row is None:
            return None
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM messages WHERE chat = ? ORDER BY created, rowid", (chat,)
        )
        tree = MessageTree(map(_node, rows))
        title, created, options, head = row
        return StoredChat(chat, title, created, ChatOptions.restored(_loaded(options)), head, tree)

    # Messages

    def put(self, chat: ChatId, node: Node) -> None:
        """Add a message or replace it. A chat that was removed meanwhile stays removed."""
        writer = self._writers.name if node.status is Status.WRITING else ""
        with self._transaction() as run:
            if not run("SELECT 1 FROM chats WHERE id = ?", (chat,)).fetchone():
                return
            run(_UPSERT, (chat, *_row(node), writer))
            run("UPDATE chats SET updated = max(updated, ?) WHERE id = ?", (time.time(), chat))

    def checkpoint(self, message: MessageId, text: str) -> None:
        """The text of a reply so far."""
        with self._transaction() as run:
            run(
                "UPDATE messages SET text = ? WHERE id = ? AND status = 'writing'",
                (_text(text), message),
            )

    def remove_message(self, message: MessageId) -> None:
        with self._transaction() as run:
            run("DELETE FROM messages WHERE id = ?", (message,))

    def mark_interrupted(self) -> int:
        """Replies whose program is gone count as interrupted; how many there were."""
        rows = self._connection.execute("SELECT DISTINCT writer FROM messages WHERE status = 'writing'")
        gone = [writer for (writer,) in rows.fetchall() if not self._writers.is_alive(writer)]
        marked = 0
        with self._transaction() as run:
            for writer in gone:
                cursor = run(
                    "UPDATE messages SET status = 'interrupted', writer = '' "
                    "WHERE status = 'writing' AND writer = ?",
                    (writer,),
                )
                marked += cursor.rowcount
        return marked

    def recent_prompts(self, limit: int) -> list[str]:
        """What users typed, the oldest first, without repetitions in a row."""
        rows = self._connection.execute(
            "SELECT text FROM messages WHERE role = 'user' ORDER BY created DESC LIMIT ?", (limit,)
        )
        texts = [text for (text,) in rows][::-1]
        return [text for place, text in enumerate(texts) if not place or text != texts[place - 1]]

    def search(self, query: str, limit: int = 50) -> list[Hit]:
        """What holds `query`, nothing of which is an operator: names of chats, then messages, newest first.

        A chat of which a message is found is not found by its name once more.
        """
        query = _text(query.strip())
        if not query:
            return []
        if len(query) >= TRIGRAM:
            found, argument = "messages.id IN (SELECT rowid FROM found WHERE found MATCH ?)", matching(query)
        else:
            found, argument = r"messages.text LIKE ? ESCAPE '\' AND status <> 'writing'", like(query)
        rows = self._connection.execute(
            f"SELECT messages.id, chat, role, text FROM messages WHERE {found} "
            "ORDER BY messages.created DESC LIMIT ?",
            (argument, limit),
        ).fetchall()
        chats = {summary.id: summary for summary in self.chats()}
        messages = [
            Hit(chats[chat], message, Role(role), excerpt(text, query))
            for message, chat, role, text in rows
            if chat in chats
        ]
        told = {hit.chat.id for hit in messages}
        names = [
            Hit(summary, None, None, piece)
            for summary in chats.values()
            if summary.id not in told and (piece := name_excerpt(summary.title, query)) is not None
        ]
        return [*names, *messages][:limit]

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """One write; raises HistoryError."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise HistoryError(f"the chat store cannot be written: {error}") from error


def open_history(path: Path) -> History:
    """Open or make a store. Raises HistoryError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        # Autocommit: transactions are begun by hand. The thread that uses it may be another than this one.
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
    except OSError as error:
        told = unwritable(path, error)
        raise HistoryUnwritable(f"the chat store cannot be opened: {told.message}", hint=told.hint) from error
    except sqlite3.Error as error:
        raise HistoryError(f"the chat store {path} cannot be opened: {error}") from error
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # survives the end of any program
        connection.execute("PRAGMA foreign_keys = ON")
        migrate(connection, path)
        return History(connection, Writers(path.with_name(f"{path.name}.writers")))
    except (OSError, sqlite3.Error) as error:
        connection.close()
        raise HistoryError(f"the chat store {path} cannot be used: {error}") from error
    except BaseException:
        connection.close()
        raise


_SUMMARIES = (
    "SELECT id, title, created, updated, "
    "(SELECT count(*) FROM messages WHERE messages.chat = chats.id) FROM chats"
)
_COLUMNS = "id, parent, role, text, created, status, token_ids, model, seed, details"
_UPSERT = (
    f"INSERT INTO messages (chat, {_COLUMNS}, writer) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET text = excluded.text, status = excluded.status, "
    "token_ids = excluded.token_ids, seed = excluded.seed, details = excluded.details, "
    "writer = excluded.writer"
)


def _text(text: str) -> str:
    """Half a surrogate pair cannot be stored."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _row(node: Node) -> tuple[object, ...]:
    details = {"figures": asdict(node.figures), "error": node.error, "notes": node.notes}
    ids = None if node.token_ids is None else array("q", node.token_ids).tobytes()
    return (
        *(node.id, node.parent, node.role.value, _text(node.text), node.created, node.status.value),
        *(ids, node.model, node.seed, json.dumps(details)),
    )


def _node(row: tuple[Any, ...]) -> Node:
    number, parent, role, text, created, status, blob, model, seed, stored = row
    details = _loaded(stored)
    ids = None
    if blob is not None:
        numbers = array("q")
        numbers.frombytes(blob)
        ids = tuple(numbers)
    known = {name: value for name, value in details.get("figures", {}).items() if name in _FIGURES}
    error = details.get("error")
    return Node(
        id=number,
        parent=parent,
        role=Role(role),
        text=text,
        created=created,
        status=Status(status),
        token_ids=ids,
        model=model,
        seed=seed,
        figures=Figures(**known),
        error=(error[0], error[1]) if error else None,
        notes=tuple(details.get("notes", ())),
    )


_FIGURES = set(Figures.__slots__)


def _loaded(text: str) -> dict[str, Any]:
    try:
        loaded = json.loads(text)
    except ValueError:
        return {}
    return loaded if isinstance(loaded, dict) else {}
