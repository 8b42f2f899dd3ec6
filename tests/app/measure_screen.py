"""Measure what a user waits for: `python -m tests.app.measure_screen`.

First the echo of keys while a long reply streams, then the opening of a chat of 500 messages. The chat runs
in a terminal of its own, on a runtime that streams as the real one does: pieces ten times a second. Every
key is a letter that occurs nowhere else; its echo is the moment at which the terminal gets it.
"""

from __future__ import annotations

import os
import pty
import select
import statistics
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetchat.app.events import ChatNumber, ReplyFinished, TextArrived
from fleetchat.chat.turn import Turn
from tests.app.test_robust import write_long_chat
from tests.fakes.runtime import FakeRuntime, answer

KEYS_A_SECOND = 8  # of somebody who types fast
PIECES_A_SECOND = 10
LETTERS = [chr(code) for code in range(0x4E00, 0x9FFF)]
DONE = "\N{BLACK CHESS QUEEN}"  # the end of every reply

LIST = "".join(
    f"{number}. item *{number}* of the list, with `code` and some words\n" for number in range(1, 201)
)
CODE = "```py\n" + "".join(f"line_{number} = function({number})  # why\n" for number in range(300)) + "```\n"
ROWS = "".join(f"| {number} | name *{number}* | {number * 7} |\n" for number in range(200))
TABLE = f"| number | name | value |\n|---|---|---|\n{ROWS}"
LONG_CHAT, MESSAGES = "a long chat", 500
REPLIES = {"list": LIST, "code": CODE, "table": TABLE, "all three": f"{LIST}\n{CODE}\n{TABLE}"}


class SteadyRuntime(FakeRuntime):
    """Streams one reply, so that it takes `seconds`."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__()
        self._text, self._seconds = text, seconds

    def submit(self, chat: ChatNumber, turn: Turn) -> None:
        super().submit(chat, turn)
        threading.Thread(target=self._stream, args=(chat,), daemon=True).start()

    def _stream(self, chat: ChatNumber) -> None:
        pieces = round(self._seconds * PIECES_A_SECOND)
        size = -(-len(self._text) // pieces)
        for start in range(0, len(self._text), size):
            time.sleep(1 / PIECES_A_SECOND)
            self.say(TextArrived(chat, self._text[start : start + size]))
        self.say(ReplyFinished(chat, answer(f"{self._text}\n\n{DONE}")))


def show(name: str, seconds: float) -> None:
    """The chat in this terminal: it streams the reply of that name, or has one long chat in its store."""
    from fleetchat.app.app import FleetchatApp
    from fleetchat.app.archive import Archive
    from fleetchat.app.theme import LoadedThemes

    runtime = SteadyRuntime(REPLIES.get(name, ""), seconds)
    with TemporaryDirectory() as folder:
        if name == LONG_CHAT:
            write_long_chat(Path(folder), MESSAGES)
            (Path(folder) / "tabs.toml").unlink()
        archive = Archive(Path(folder) / "chats.db")
        app = FleetchatApp(runtime, archive, LoadedThemes((), ()), "textual-dark", Path(folder))
        threading.Timer(1.0, runtime.become_ready).start()
        app.run()


class Terminal:
    """A process in a terminal of 100 by 30 cells; what it writes is watched for."""

    def __init__(self, command: list[str]) -> None:
        self.pid, self._file = pty.fork()
        if not self.pid:
            os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
            os.execv(command[0], command)
        self._resize()
        self._written = b""

    def _resize(self) -> None:
        import fcntl
        import termios

        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def seen(self, text: str, seconds: float) -> float | None:
        """Seconds until `text` was written; None when it was not in that time."""
        began = time.perf_counter()
        sought = text.encode()
        while (left := began + seconds - time.perf_counter()) > 0:
            if sought in self._written:
                self._written = b""
                return time.perf_counter() - began
            if select.select([self._file], [], [], left)[0]:
                self._written = self._written[-64:] + os.read(self._file, 65536)
        return None

    def close(self) -> None:
        self.type("\x11")
        while True:
            try:
                if not os.read(self._file, 65536):
                    break
            except OSError:  # Linux's way of telling that the other side is closed
                break
        os.waitpid(self.pid, 0)
        os.close(self._file)


def echoes(name: str, seconds: float) -> Iterator[float]:
    """The echo time of every key that is pressed from the first piece of a reply to its end."""
    terminal = Terminal([sys.executable, "-m", "tests.app.measure_screen", name, str(seconds)])
    assert terminal.seen("Message", 30) is not None
    terminal.type("go\r")
    assert terminal.seen("Writing", 30) is not None
    began = time.perf_counter()
    for letter in LETTERS:
        if time.perf_counter() - began > seconds + 2:
            break
        due = time.perf_counter() + 1 / KEYS_A_SECOND
        terminal.type(letter)
        echo = terminal.seen(letter, 20)
        assert echo is not None
        yield echo
        time.sleep(max(0.0, due - time.perf_counter()))
    terminal.close()


def opening() -> float:
    """Seconds from Enter in the list of stored chats to the end of the chat on the screen."""
    terminal = Terminal([sys.executable, "-m", "tests.app.measure_screen", LONG_CHAT, "0"])
    assert terminal.seen("ready", 30) is not None
    terminal.type("\x1bOR")
    assert terminal.seen("500 messages", 30) is not None
    terminal.type("\r")
    shown = terminal.seen(f"message {MESSAGES}", 30)
    assert shown is not None
    terminal.close()
    return shown


def main(seconds: float = 12.0) -> None:
    for name in REPLIES:
        found = sorted(echoes(name, seconds))
        p95 = found[round(0.95 * (len(found) - 1))]
        figures = (
            f"p50 {1000 * statistics.median(found):4.0f}  p95 {1000 * p95:4.0f}  most {1000 * found[-1]:4.0f}"
        )
        print(f"{name:<10} {len(found):4} keys  {figures} ms", flush=True)
    times = " ".join(f"{1000 * opening():.0f}" for _ in range(5))
    print(f"a chat of {MESSAGES} messages opens in {times} ms")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        show(sys.argv[1], float(sys.argv[2]))
    else:
        main()
