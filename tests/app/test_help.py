"""F1 begins with what can be done where it is pressed."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from fleetchat.app.chat_state import ChatState
from fleetchat.app.events import ChatNumber, ReplyFinished, RuntimeFailed, TextArrived
from fleetchat.app.help_text import Situation, chat_help, now_help
from fleetchat.app.keymap import resolve
from fleetchat.app.screens.dialogue import Dialogue
from fleetchat.app.screens.help import HelpScreen, help_lines
from fleetchat.app.words import Phase
from fleetchat.chat.tree import Node
from fleetchat.fleet.telemetry import FinishReason
from tests.app.pilot import chat_screen, running, screen_text, type_text, wait_until
from tests.fakes.runtime import FakeRuntime, answer

ONE = ChatNumber(1)
KEYS = resolve({"message.continue": "f10"})


def keys_of(command: object) -> str:
    return KEYS.shown(command.id)  # type: ignore[attr-defined]


def asked() -> ChatState:
    state = ChatState(ONE)
    state.ask("question", 1.0)
    return state


def writing() -> ChatState:
    state = asked()
    state.begin_reply("Tiny", 2.0)
    return state


def answered(reason: FinishReason = FinishReason.STOP) -> ChatState:
    state = writing()
    state.finish(answer("a reply", reason=reason), seen=True)
    return state


def queued() -> ChatState:
    state = writing()
    state.queued = True
    return state


def edited() -> ChatState:
    state = answered()
    state.editing = state.path[0].id
    return state


@pytest.mark.parametrize(
    ("now", "title", "first"),
    [
        (Situation(Phase.READY, ChatState(ONE)), "an empty chat", ("Enter", "Send what you typed")),
        (Situation(Phase.READY, writing()), "a reply is being written", ("Esc", "Stop it and keep its text")),
        (Situation(Phase.READY, queued()), "your message waits", ("Esc", "Take it back")),
        (Situation(Phase.READY, answered()), "your turn", ("Enter", "Send what you typed")),
        (Situation(Phase.READY, edited()), "you edit a message", ("Enter", "Send it as a new branch")),
        (Situation(Phase.READY, asked(), "/re"), "a command is typed", ("Tab", "Complete it")),
        (Situation(Phase.STARTING, asked()), "the fleet is starting", ("Enter", "It is sent when")),
        (Situation(Phase.FAILED, asked()), "the fleet is not running", ("Enter", "See why")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_be_done_now_comes_first(now: Situation, title: str, first: tuple[str, str]) -> None:
    group = chat_help(now, keys_of)[0]
    assert group.title == f"Now: {title}"
    assert group.rows[0].keys == first[0]
    assert group.rows[0].meaning.startswith(first[1])


def test_no_line_is_too_long_for_eighty_columns() -> None:
    states = [ChatState(ONE), asked(), writing(), queued(), answered(), edited()]
    nows = [Situation(phase, state, typed) for phase in Phase for state in states for typed in ("", "/")]
    groups = [group for now in nows for group in chat_help(now, keys_of)]
    groups += [dialogue.HELP_HERE for dialogue in Dialogue.__subclasses__()]
    widths = {len(line.plain): line.plain for line in help_lines(groups)}
    assert max(widths) <= 80 - 2 - 4 - 1, widths[max(widths)]  # the frame, the padding, the scroll bar


def meanings(now: Situation) -> dict[str, str]:
    return {row.keys: row.meaning for row in now_help(now, keys_of).rows}


def test_a_reply_that_broke_off_is_gone_on_with_by_the_user_s_own_key() -> None:
    stopped = meanings(Situation(Phase.READY, answered(FinishReason.CANCELLED)))
    assert stopped["F10"] == "Go on with the reply that broke off"
    failed = meanings(Situation(Phase.READY, answered(FinishReason.ERROR)))
    assert failed["F5, Alt+R"] == "Try the failed reply again"
    assert "F10" not in failed


def test_a_selected_message_says_what_can_be_done_with_it() -> None:
    state = answered()
    user, reply = state.path

    def selected(node: Node) -> dict[str, str]:
        return meanings(Situation(Phase.READY, state, selected=node, following=False))

    assert selected(user)["Alt+E"] == "Edit it, as a new branch"
    assert selected(reply)["Alt+O"] == "Copy its last code block"
    assert "Alt+V" not in selected(reply)
    assert selected(user)["End"] == "Go to the newest text; you scrolled up"
    state.regenerate(reply, "Tiny", 3.0)
    assert selected(reply)["Alt+V"] == "Show its next version"


async def help_shows(pilot: Pilot[None], words: str) -> None:
    """F1 tells this, and Esc goes back to where one was."""
    below = pilot.app.screen
    await pilot.press("f1")
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
    await wait_until(pilot, lambda: words in screen_text(pilot))
    await pilot.press("escape")
    await wait_until(pilot, lambda: pilot.app.screen is below)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_f1_follows_the_chat() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        await help_shows(pilot, "Now: an empty chat")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: runtime.submitted)
        runtime.say(TextArrived(ONE, "half a reply"))
        await help_shows(pilot, "Now: a reply is being written")
        runtime.say(ReplyFinished(ONE, answer("half a reply", reason=FinishReason.CANCELLED)))
        await wait_until(pilot, lambda: "stopped by you" in screen_text(pilot))
        await help_shows(pilot, "Go on with the reply that broke off")
        await pilot.press("alt+k")
        await help_shows(pilot, "Now: a message is selected")
        await type_text(pilot, "x")
        chat_screen(pilot).pane.prompt.set_text("/re")
        await help_shows(pilot, "Now: a command is typed")


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("keys", "title"),
    [
        (("f2",), "one line is asked for"),
        (("f3",), "the chats that are stored"),
        (("f4",), "the colours"),
        (("/model",), "one of a list is asked for"),
        (("/delete",), "are you sure?"),
    ],
)
async def test_f1_tells_what_can_be_done_in_a_dialogue(keys: tuple[str, ...], title: str) -> None:
    async with running(FakeRuntime()) as pilot:
        if keys[0].startswith("/"):
            chat_screen(pilot).pane.prompt.set_text(keys[0])
            await pilot.press("enter")
        else:
            await pilot.press(*keys)
        await wait_until(pilot, lambda: pilot.app.screen is not chat_screen(pilot))
        await help_shows(pilot, f"Now: {title}")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_f1_helps_when_the_fleet_has_failed() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as pilot:
        runtime.say(RuntimeFailed("broken", ""))
        await wait_until(pilot, lambda: "R tries again" in screen_text(pilot))
        await help_shows(pilot, "Start it again")
