from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleetchat.chat import schema
from fleetchat.chat.history import ChatId, History, open_history
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.search import excerpt
from fleetchat.chat.tree import Figures, MessageId, Node, Status
from fleetchat.errors import HistoryError

CHAT = ChatId(7)
# What a model may write: separators, controls, combining marks, emoji with joiners, right to left.
AWKWARD = "a\u2028b\x0cc\r\nd\x00e\x1b]0;x\x07 e\u0301 👩\u200d🚀 مرحبا नमस्ते 안녕하세요 \ufffd"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "chats.db"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with closing(open_history(path)) as history:
        history.add_chat(CHAT, "Title", 100.0, ChatOptions(system="Be brief.", top_k=3))
        yield history


def node(number: int, text: str, status: Status = Status.COMPLETE, parent: int | None = None) -> Node:
    above = None if parent is None else MessageId(parent)
    return Node(MessageId(number), above, Role.ASSISTANT, text, 100.0 + number, status, model="m")


def stored(history: History, number: int) -> Node:
    chat = history.chat(CHAT)
    assert chat is not None
    return chat.tree.node(MessageId(number))


def test_what_is_stored_is_what_the_model_wrote(history: History, path: Path) -> None:
    reply = Node(
        id=MessageId(2**63 - 1),
        parent=MessageId(1),
        role=Role.ASSISTANT,
        text=AWKWARD,
        created=101.5,
        status=Status.FAILED,
        token_ids=(0, 1, 2**31),
        model="m",
        seed=2**63 - 1,
        figures=Figures(tokens=3, tokens_per_s=21.5, drafted=4, accepted=2),
        error=("lost", "start it"),
        notes=("a note",),
    )
    history.put(CHAT, node(1, "question"))
    history.put(CHAT, reply)
    history.set_head(CHAT, reply.id)
    with closing(open_history(path)) as again:
        chat = again.chat(CHAT)
        assert chat is not None
        assert chat.tree.node(reply.id) == reply
        assert chat.options == ChatOptions(system="Be brief.", top_k=3)
        assert [one.id for one in chat.tree.path(chat.head)] == [1, reply.id]
    assert path.stat().st_mode & 0o077 == 0


def test_half_a_surrogate_pair_is_no_reason_to_lose_a_message(history: History) -> None:
    history.put(CHAT, node(1, "a\ud83db"))
    assert stored(history, 1).text == "a?b"


def test_chats_are_listed_renamed_and_removed(history: History) -> None:
    history.put(CHAT, node(1, "hello world"))
    history.add_chat(ChatId(8), "Other", 5.0, ChatOptions())
    history.rename(CHAT, "../x 👩\u200d🚀")
    assert [(chat.title, chat.messages) for chat in history.chats()] == [("../x 👩\u200d🚀", 1), ("Other", 0)]
    history.remove_chat(CHAT)
    assert [chat.id for chat in history.chats()] == [8]
    assert history.search("hello") == []
    history.put(CHAT, node(2, "late"))  # the other program still had it open
    assert history.chat(CHAT) is None


def test_a_reply_is_kept_while_it_is_written_and_found_when_it_is_complete(history: History) -> None:
    history.put(CHAT, node(1, "", Status.WRITING))
    history.checkpoint(MessageId(1), "half a lighthouse")
    assert stored(history, 1).text == "half a lighthouse"
    assert history.search("lighthouse") == []
    history.put(CHAT, node(1, "a whole lighthouse"))
    assert [hit.excerpt.hit for hit in history.search("LIGHT")] == ["light"]
    history.checkpoint(MessageId(1), "too late")
    assert stored(history, 1).text == "a whole lighthouse"
    history.put(CHAT, node(1, "an edited tower"))
    assert history.search("lighthouse") == []
    assert len(history.search("tower")) == 1


@pytest.mark.parametrize(
    "query", ["灯台", "台", "안녕", "नमस्ते", 'say "x" OR', "100%", "a_b", "c:\\d", "x", "NEAR(", "*", "-z"]
)
def test_any_text_is_found_literally(history: History, query: str) -> None:
    history.put(CHAT, node(1, f"before {query} after"))
    history.put(CHAT, node(2, "before after 100 axb 灯 say c d"))
    [hit, *others] = history.search(query)
    assert hit.message == 1 or query == "x"
    assert hit.excerpt.hit == query
    assert not others or query in ("x", "灯")


@pytest.mark.parametrize(
    ("name", "query", "hit"),
    [
        ("Tür 灯台", "Tür", "Tür"),
        ("Tür 灯台", "TUR", "Tür"),
        ("Tur", "tür", "Tur"),
        ("an der Tu\u0308r", "tür", "Tu\u0308r"),  # the accent as a character of its own
        ("Tür 灯台", "台", "台"),
        ("100% a_b", "% a_", "% a_"),
        ("STRASSE", "straße", "STRASSE"),
        ("İstanbul", "istanbul", "İstanbul"),
        ("안녕하세요", "안녕", "안녕"),
    ],
)
def test_a_chat_is_found_by_its_name(history: History, name: str, query: str, hit: str) -> None:
    history.put(CHAT, node(1, "something else"))
    history.rename(CHAT, name)
    [found] = history.search(f" {query} ")
    assert (found.chat.id, found.message, found.role, found.excerpt.hit) == (CHAT, None, None, hit)
    assert found.excerpt.text == name
    assert history.search("nowhere") == history.search("\u0308") == []


def test_names_come_first_and_no_chat_twice_for_its_name(history: History) -> None:
    history.put(CHAT, node(1, "a lighthouse"))
    history.rename(CHAT, "Lighthouse")
    for number in (8, 9):
        history.add_chat(ChatId(number), f"lighthouse {number}", float(number), ChatOptions())
    found = [(hit.chat.id, hit.message) for hit in history.search("lighthouse")]
    assert found == [(9, None), (8, None), (CHAT, 1)]
    assert [hit.chat.id for hit in history.search("lighthouse", limit=1)] == [9]


def test_an_excerpt_shows_the_hit_in_one_line() -> None:
    found = excerpt("x" * 50 + "\nthe Lighthouse\nshines" + "y" * 100, "lighthouse")
    assert (found.before[0], found.hit, found.after[-1]) == ("…", "Lighthouse", "…")
    assert "\n" not in found.text
    assert excerpt("İstanbul", "stan").hit == "stan"
    assert excerpt("nothing", "x").text == "nothing"


def test_prompts_are_remembered_across_chats_without_repetitions(history: History) -> None:
    for number, text in enumerate(["a", "b", "b", "c"]):
        history.put(CHAT, Node(MessageId(number + 1), None, Role.USER, text, float(number)))
    assert history.recent_prompts(3) == ["b", "c"]
    assert history.recent_prompts(10) == ["a", "b", "c"]


KILLED = """
import os, signal, sys
from pathlib import Path
from fleetchat.chat.history import *
history = open_history(Path(sys.argv[1]))
history.put(ChatId(7), Node(MessageId(5), None, Role.USER, "question", 1.0))
history.put(ChatId(7), Node(MessageId(6), MessageId(5), Role.ASSISTANT, "", 2.0, Status.WRITING))
history.checkpoint(MessageId(6), "half")
print("saved", flush=True)
sys.stdin.read()
"""


def test_a_reply_of_a_killed_program_is_interrupted_and_one_of_a_living_program_is_not(
    history: History, path: Path
) -> None:
    history.put(CHAT, node(1, "mine", Status.WRITING))
    other = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "saved\n"
    assert history.mark_interrupted() == 0
    other.kill()
    other.communicate()
    assert history.mark_interrupted() == 1
    assert stored(history, 5).text == "question"
    assert (stored(history, 6).text, stored(history, 6).status) == ("half", Status.INTERRUPTED)
    assert stored(history, 1).status is Status.WRITING
    assert len(history.search("half")) == 1
    assert len(list(path.with_name("chats.db.writers").glob("*"))) <= 2  # ours, with its journal


def test_many_programs_write_at_once_and_nothing_is_lost(path: Path) -> None:
    def write(first: int) -> None:
        with closing(open_history(path)) as own:
            own.add_chat(CHAT, "Title", 1.0, ChatOptions())
            for number in range(first, first + 40):
                own.put(CHAT, node(number, f"text {number}", parent=None))

    threads = [threading.Thread(target=write, args=(1 + 40 * place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(open_history(path)) as history:
        chat = history.chat(CHAT)
        assert chat is not None
        assert {one.text for one in chat.tree} == {f"text {number}" for number in range(1, 161)}
        assert len(history.search("text", limit=1000)) == 160


def test_an_older_store_is_copied_and_brought_forward(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        with closing(open_history(path)) as old:
            old.add_chat(CHAT, "Old", 1.0, ChatOptions())
            old.put(CHAT, node(1, "an old lighthouse"))
    with closing(open_history(path)) as history:
        assert len(history.search("lighthouse")) == 1
    with closing(sqlite3.connect(path.with_name("chats.db.v1"))) as backup:
        assert backup.execute("SELECT text FROM messages").fetchall() == [("an old lighthouse",)]
        assert backup.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_newer_store_is_refused_and_left_alone(path: Path, history: History) -> None:
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(HistoryError, match=r"newer fleetchat \(version 99"):
        open_history(path)


def test_what_is_no_store_is_said_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "chats.db"
    file.write_text("no database" * 1000, encoding="utf-8")
    with pytest.raises(HistoryError, match="cannot be used: file is not a database"):
        open_history(file)
    (tmp_path / "folder").write_text("", encoding="utf-8")
    with pytest.raises(HistoryError, match="cannot be opened"):
        open_history(tmp_path / "folder" / "chats.db")
