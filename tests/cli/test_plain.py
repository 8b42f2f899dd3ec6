"""The chat as lines of text, on a runtime that answers at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleetchat.app.commands import BY_SLASH
from fleetchat.app.events import (
    ChatNumber,
    FleetReady,
    ReplyFinished,
    Report,
    RuntimeFailed,
    TextArrived,
    Told,
)
from fleetchat.chat.history import History, open_history
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.turn import Turn
from fleetchat.cli.plain import COMMANDS, PlainChat
from fleetchat.errors import FleetError
from fleetchat.fleet.telemetry import FinishReason
from tests.fakes.runtime import CONTEXT, MODEL, FakeRuntime, answer


class Answering(FakeRuntime):
    """Repeats what was asked, in capitals and two pieces."""

    def start(self, report: Report) -> None:
        super().start(report)
        self.say(FleetReady(MODEL, CONTEXT))

    def submit(self, chat: ChatNumber, turn: Turn) -> None:
        super().submit(chat, turn)
        text = turn.prompt.upper() + "\x1b[2J"
        self.say(TextArrived(chat, text[:2]), TextArrived(chat, text[2:]), ReplyFinished(chat, answer(text)))


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with closing(open_history(tmp_path / "chats.db")) as history:
        yield history


def converse(runtime: FakeRuntime, history: History, *lines: str) -> None:
    typed = iter(lines)

    def read(_prompt: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    PlainChat(runtime, history, read).run()


def test_lines_go_in_and_answers_come_out(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = Answering()
    converse(runtime, history, "hello", "", "two \\", "lines")
    shown = capsys.readouterr().out
    assert f"{MODEL}: HELLO[2J\n1 token · 21.4 tokens/s · first token after 0.18 s · finished\n" in shown
    assert "\x1b" not in shown
    assert [text for _, text in runtime.submitted] == ["hello", "two \nlines"]
    [chat] = history.chats()
    assert (chat.title, chat.messages) == ("hello", 4)


def test_commands_work_line_by_line(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = Answering()
    converse(
        runtime,
        history,
        *("/retry", "/set temperature 0.2", "/set temperature hot", "a", "/retry", "/continue", "/new", "b"),
        *("/system Be brief", "c", "/quit", "never"),
    )
    shown = capsys.readouterr().out
    assert "temperature: 0.2\n" in shown
    assert "temperature must be a number" in shown
    assert [turn.another for turn in runtime.turns] == [False, True, False, False, False]
    assert runtime.turns[2].continues
    assert runtime.turns[0].options == ChatOptions(temperature=0.2)
    assert runtime.turns[4].options == ChatOptions(system="Be brief")
    assert [chat.messages for chat in history.chats()] == [4, 3]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/nosuch", "There is no command /nosuch. A space before / sends it as text"),
        ("/retri x", "There is no command /retri; the nearest is 'retry'. A space before / sends it as text"),
        ("/retry", "There is no reply yet."),
        ("/continue", "There is no reply to go on with."),
        *(
            (f"/{name}", f"/{name} works on the screen, not with --plain; /help says what does")
            for name in sorted(set(BY_SLASH) - set(COMMANDS))
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    history: History, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    runtime = Answering()
    converse(runtime, history, line)
    assert capsys.readouterr().out.split("\n", 3)[3] == f"{words}\n"
    assert runtime.turns == []


@pytest.mark.parametrize("line", [" /nosuch", "/ nosuch", "/usr/bin is full", "/5"])
def test_what_is_no_command_is_a_message(history: History, line: str) -> None:
    runtime = Answering()
    converse(runtime, history, line)
    assert [turn.prompt for turn in runtime.turns] == [line]


def test_a_reply_without_a_word_is_replaced_by_the_next_try(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    class Mute(Answering):
        def submit(self, chat: ChatNumber, turn: Turn) -> None:
            FakeRuntime.submit(self, chat, turn)
            self.say(ReplyFinished(chat, answer("", reason=FinishReason.ERROR, error=("lost", ""))))

    runtime = Mute()
    converse(runtime, history, "hello", "/continue", "/retry", "/retry")
    assert [turn.continues for turn in runtime.turns] == [False, False, False]
    assert [chat.messages for chat in history.chats()] == [2]
    unanswered = "not answered: later replies are written without this message; /retry answers it\n"
    assert capsys.readouterr().out.count(f"failed: lost\n{unanswered}") == 3


@pytest.mark.parametrize("line", ["/quit", "/QUIT now", "/exit"])
def test_leaving(history: History, line: str) -> None:
    runtime = Answering()
    converse(runtime, history, line, "never")
    assert runtime.turns == []


def test_what_applies_is_listed(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    class Configured(Answering):
        def start(self, report: Report) -> None:
            report(FleetReady(MODEL, CONTEXT, ChatOptions(temperature=0.5, top_k=0)))

    converse(Configured(), history, "/set seed 0", "/set", "/set seed", "/set seed default", "/system")
    shown = capsys.readouterr().out.split("\n", 3)[3]
    assert shown == (
        "seed: 0\n"
        "This chat sets seed 0. As configured: system none, temperature 0.5, top_p none, top_k 0, "
        "repetition_penalty none, max_tokens none, overflow none.\n"
        "/set NAME VALUE changes one, /set NAME default unsets it.\n"
        "seed: as configured\nseed: as configured\nsystem: as configured\n"
    )


def test_a_continuation_without_a_word_has_no_line_of_its_own(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    class Complete(Answering):
        def submit(self, chat: ChatNumber, turn: Turn) -> None:
            if turn.continues:
                FakeRuntime.submit(self, chat, turn)
                self.say(ReplyFinished(chat, answer("")))
            else:
                super().submit(chat, turn)

    converse(Complete(), history, "hello", "/continue")
    figures = "1 token · 21.4 tokens/s · first token after 0.18 s · finished\n"
    shown = capsys.readouterr().out
    complete = f"{figures}note: the model has nothing to add: this reply is complete\n"
    assert shown.endswith(f"{MODEL}: HELLO[2J\n{figures}{complete}")


def test_what_befalls_the_fleet_is_said_after_the_reply(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    class Moving(Answering):
        def submit(self, chat: ChatNumber, turn: Turn) -> None:
            self.say(Told("The fleet did not move: no peer answers"))
            super().submit(chat, turn)

    converse(Moving(), history, "hello")
    assert capsys.readouterr().out.endswith("finished\nThe fleet did not move: no peer answers\n")


def test_the_first_interrupt_stops_a_reply(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(Answering):
        def submit(self, chat: ChatNumber, turn: Turn) -> None:
            FakeRuntime.submit(self, chat, turn)
            assert self.report is not None
            self.report(TextArrived(chat, "half"))
            self.report(ReplyFinished(ChatNumber(99), answer("another chat's")))
            chats._events = Breaking(chats._events)  # type: ignore[assignment]

        def stop(self, chat: ChatNumber) -> None:
            self.say(ReplyFinished(chat, answer("half", reason=FinishReason.CANCELLED)))

    class Breaking:
        def __init__(self, inner: object) -> None:
            self._inner = inner
            self._calls = 0

        def get(self) -> object:
            self._calls += 1
            if self._calls == 2:
                raise KeyboardInterrupt
            return self._inner.get()  # type: ignore[attr-defined]

        def put(self, event: object) -> None:
            self._inner.put(event)  # type: ignore[attr-defined]

    typed = iter(["hello", "/quit"])
    runtime = Interrupted()
    chats = PlainChat(runtime, history, lambda _: next(typed))
    chats.run()
    assert "half" in capsys.readouterr().out


def test_a_fleet_that_cannot_start_is_one_error(history: History) -> None:
    class Failing(FakeRuntime):
        def start(self, report: Report) -> None:
            report(RuntimeFailed("no network", "use --from"))

    with pytest.raises(FleetError, match="no network"):
        converse(Failing(), history)
