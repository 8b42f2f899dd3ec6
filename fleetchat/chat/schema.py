"""The tables of the chat store, and how an older store becomes a newer one.

Every entry of MIGRATIONS leads to the next `user_version`. Entries are never changed once released.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fleetchat.errors import HistoryError

TABLES = """
CREATE TABLE chats (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    head INTEGER,
    options TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    parent INTEGER,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    created REAL NOT NULL,
    status TEXT NOT NULL,
    token_ids BLOB,
    model TEXT NOT NULL DEFAULT '',
    seed INTEGER,
    details TEXT NOT NULL DEFAULT '{}',
    writer TEXT NOT NULL DEFAULT ''
);
CREATE INDEX messages_of_chat ON messages (chat, created);
CREATE INDEX messages_of_users ON messages (created) WHERE role = 'user';
CREATE INDEX messages_under_way ON messages (writer) WHERE status = 'writing';
"""

# A reply under way is saved each second: it enters the index once, when it is complete.
SEARCH = """
CREATE VIRTUAL TABLE found USING fts5 (
    text, content = 'messages', content_rowid = 'id', tokenize = 'trigram'
);
INSERT INTO found (rowid, text) SELECT id, text FROM messages WHERE status <> 'writing';
CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.status <> 'writing' BEGIN
    INSERT INTO found (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages WHEN old.status <> 'writing' BEGIN
    INSERT INTO found (found, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TRIGGER messages_settled AFTER UPDATE OF text, status ON messages
WHEN old.status = 'writing' AND new.status <> 'writing' BEGIN
    INSERT INTO found (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER messages_resumed AFTER UPDATE OF text, status ON messages
WHEN old.status <> 'writing' AND new.status = 'writing' BEGIN
    INSERT INTO found (found, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TRIGGER messages_changed AFTER UPDATE OF text, status ON messages
WHEN old.status <> 'writing' AND new.status <> 'writing' BEGIN
    INSERT INTO found (found, rowid, text) VALUES ('delete', old.id, old.text);
    INSERT INTO found (rowid, text) VALUES (new.id, new.text);
END;
"""

MIGRATIONS = (TABLES, SEARCH)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring a store to the newest version; an older one is copied to a file beside it first.

    Raises HistoryError for a store of a newer program.
    """
    version = _version(connection)
    if version == len(MIGRATIONS):
        return
    if version > len(MIGRATIONS):
        raise HistoryError(
            f"{path} was written by a newer fleetchat (version {version} of the store, "
            f"this one knows {len(MIGRATIONS)})",
            hint="install the newer fleetchat again, or move the file away",
        )
    if version:
        _back_up(connection, path.with_name(f"{path.name}.v{version}"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another program may have done it meanwhile
        for script in MIGRATIONS[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    with closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)


def _statements(script: str) -> list[str]:
    """One statement each; `executescript` would commit what is open."""
    statements: list[str] = []
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            statements.append(text)
            text = ""
    return statements
