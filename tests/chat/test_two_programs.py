"""Two processes work on one store at the same time: on chats of their own, and on one that both have open."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fleetchat.chat.history import ChatId, open_history
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.tree import MessageId, Node, Status

# Read before a fixture takes it away; by hand 60.
SECONDS = float(os.environ.get("FLEETCHAT_TEST_SECONDS", "3"))
SHARED, FIRST = ChatId(1), MessageId(1)

# Says how many turns it wrote. A turn is a question, and a reply that is checkpointed and completed.
PROGRAM = """
import dataclasses, sys, time
from pathlib import Path
from fleetchat.chat.history import *
path, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
history = open_history(path)
own = new_chat_id()
history.add_chat(own, name, 1.0, ChatOptions())
print("ready", flush=True)
sys.stdin.readline()
turns, until = 0, time.monotonic() + seconds
while time.monotonic() < until:
    for chat, above in ((own, None), (ChatId(1), MessageId(1))):
        question = Node(new_message_id(), above, Role.USER, f"{name} asks {turns}", 2.0 + turns)
        reply = Node(new_message_id(), question.id, Role.ASSISTANT, "", 3.0 + turns, Status.WRITING)
        history.put(chat, question)
        history.put(chat, reply)
        history.checkpoint(reply.id, f"{name} ans")
        history.put(chat, dataclasses.replace(reply, text=f"{name} answers {turns}", status=Status.COMPLETE))
        history.set_head(chat, reply.id)
    turns += 1
print(turns, flush=True)
history.close()
"""


@pytest.mark.slow
def test_nothing_is_lost_and_one_chat_in_both_grows_two_branches(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(open_history(path)) as history:
        history.add_chat(SHARED, "shared", 1.0, ChatOptions())
        history.put(SHARED, Node(FIRST, None, Role.USER, "begun before both", 1.0))
    programs = {name: begin(path, name) for name in ("left", "right")}
    for program in programs.values():
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs.values():
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    turns = {name: int(program.communicate()[0]) for name, program in programs.items()}
    assert all(program.returncode == 0 for program in programs.values())
    assert min(turns.values()) > 0
    with closing(open_history(path)) as history:
        chats = {summary.title: history.chat(summary.id) for summary in history.chats()}
        assert set(chats) == {"left", "right", "shared"}
        shared = chats["shared"]
        assert shared is not None
        for name, count in turns.items():
            expected = {f"{name} asks {turn}": f"{name} answers {turn}" for turn in range(count)}
            own = chats[name]
            assert own is not None
            for chat in (own, shared):
                questions = {one.text: one.id for one in chat.tree if one.text.startswith(f"{name} asks")}
                replies = {one.parent: one for one in chat.tree if one.text.startswith(f"{name} answers")}
                assert {text: replies[number].text for text, number in questions.items()} == expected
                assert {one.status for one in replies.values()} == {Status.COMPLETE}
        assert all(one.parent == FIRST for one in shared.tree if one.role is Role.USER and one.id != FIRST)
        assert len(history.search("left answers", limit=10**6)) == 2 * turns["left"]
        assert history.mark_interrupted() == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def begin(path: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(path), name, str(SECONDS)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
