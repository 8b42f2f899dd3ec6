"""Every command, carried out on the screen as its slash name or, without one, its key does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from fleetchat.app.commands import BY_ID, NUMBERED
from fleetchat.app.events import ChatNumber, CutProposed, ReplyFinished, TextArrived
from fleetchat.app.screens.ask_line import AskLineScreen
from fleetchat.app.screens.choose import ChooseScreen
from fleetchat.app.screens.confirm import ConfirmScreen
from fleetchat.app.screens.find_chat import FindChatScreen
from fleetchat.app.screens.fleet import FleetScreen
from fleetchat.app.screens.help import HelpScreen
from fleetchat.app.screens.proposal import ProposalScreen
from fleetchat.app.screens.theme_picker import ThemePicker
from fleetchat.fleet.telemetry import FinishReason
from tests.app.pilot import chat_screen, running, screen_text, type_text, wait_until
from tests.fakes.runtime import FakeRuntime, answer

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ONE, TWO = ChatNumber(1), ChatNumber(2)
REPLY = "<think>hm</think>\n\n```py\nx = 1\n```\n\n" + "".join(f"line {number}\n\n" for number in range(30))


class Run:
    """One chat with a question and a long reply, in the first of two tabs; the second is empty."""

    def __init__(self, pilot: Pilot[None], runtime: FakeRuntime) -> None:
        self.pilot, self.runtime = pilot, runtime
        self.screen = chat_screen(pilot)

    async def prepare(self) -> None:
        await self.ask("question")
        self.runtime.say(ReplyFinished(ONE, answer(REPLY, reason=FinishReason.CANCELLED)))
        await self.until(lambda: "stopped by you" in self.shown())
        await self.do("/new")
        await self.until(lambda: self.screen.tabs.numbers == [ONE, TWO])
        await self.do("/previous")
        await self.until(lambda: self.screen.tabs.active == ONE and "stopped by you" in self.shown())

    async def ask(self, text: str) -> None:
        before = len(self.runtime.turns)
        await self.do(text)
        await self.until(lambda: len(self.runtime.turns) == before + 1)

    async def do(self, text: str) -> None:
        """Send a text, a slash command for instance."""
        prompt = self.screen.pane.prompt
        prompt.set_text(text)
        await self.until(lambda: prompt.text == text)
        await self.pilot.press("enter")

    async def until(self, condition: Callable[[], object]) -> None:
        await wait_until(self.pilot, condition)

    async def opens(self, dialogue: type, text: str) -> None:
        await self.do(text)
        await self.until(lambda: isinstance(self.pilot.app.screen, dialogue))

    def shown(self) -> str:
        return screen_text(self.pilot)


async def stop(run: Run) -> None:
    await run.ask("more")
    await run.do("/stop")
    await run.until(lambda: run.runtime.stopped == [ONE])


async def regenerate(run: Run) -> None:
    await run.do("/retry")
    await run.until(lambda: len(run.runtime.turns) == 2 and run.runtime.turns[1].another)


async def go_on(run: Run) -> None:
    await run.do("/continue")
    await run.until(lambda: len(run.runtime.turns) == 2 and run.runtime.turns[1].continues)


async def edit(run: Run) -> None:
    await run.do("/edit")
    await run.until(lambda: run.screen.pane.prompt.text == "question" and "Editing" in run.shown())


async def version(run: Run) -> None:
    await regenerate(run)
    run.runtime.say(ReplyFinished(ONE, answer("another")))
    await run.until(lambda: "2 of 2" in run.shown())
    await run.do("/version")
    await run.until(lambda: run.screen.pane.state.path[-1].text == REPLY)


async def up(run: Run) -> None:
    await run.pilot.press("alt+k", "alt+k")
    await run.until(lambda: "▸ You" in run.shown())


async def down(run: Run) -> None:
    await up(run)
    await run.pilot.press("alt+j")
    await run.until(lambda: run.screen.pane.transcript.selected == run.screen.pane.state.path[1].id)


async def copy(run: Run) -> None:
    await run.do("/copy")
    await run.until(lambda: run.pilot.app.clipboard == REPLY)


async def code(run: Run) -> None:
    await run.do("/code")
    await run.until(lambda: run.pilot.app.clipboard == "x = 1\n")


async def thought(run: Run) -> None:
    await run.do("/thoughts")
    await run.until(lambda: run.screen.pane.query("ThoughtView.-open"))


async def new(run: Run) -> None:
    await run.do("/new")
    await run.until(lambda: len(run.screen.tabs.numbers) == 3)


async def close(run: Run) -> None:
    await run.do("/close")
    await run.until(lambda: run.screen.tabs.numbers == [TWO] and run.runtime.closed == [ONE])


async def reopen(run: Run) -> None:
    await close(run)
    await run.do("/reopen")
    await run.until(lambda: run.screen.tabs.active == ONE and "line 29" in run.shown())


async def rename(run: Run) -> None:
    await run.do("/rename Mine")
    await run.until(lambda: "1 Mine" in run.shown())
    await run.opens(AskLineScreen, "/rename")


async def following(run: Run) -> None:
    await run.do("/next")
    await run.until(lambda: run.screen.tabs.active == TWO)


async def previous(run: Run) -> None:
    await run.do("/previous")  # around the end
    await run.until(lambda: run.screen.tabs.active == TWO)


async def move_right(run: Run) -> None:
    await run.do("/right")
    await run.until(lambda: run.screen.tabs.numbers == [TWO, ONE])


async def move_left(run: Run) -> None:
    await move_right(run)
    await run.do("/left")
    await run.until(lambda: run.screen.tabs.numbers == [ONE, TWO])


async def show(run: Run) -> None:
    await run.do("/tab 2")
    await run.until(lambda: run.screen.tabs.active == TWO)


async def find(run: Run) -> None:
    await run.opens(FindChatScreen, "/find question")
    await run.until(lambda: "1 message" in run.shown())


async def export(run: Run) -> None:
    file = run.screen.state_folder / "chat.json"
    await run.do(f"/export {file}")
    await run.until(file.exists)


async def delete(run: Run) -> None:
    await run.opens(ConfirmScreen, "/delete")
    await run.pilot.press("y")
    await run.until(lambda: run.screen.tabs.numbers == [TWO])


async def system(run: Run) -> None:
    await run.do("/system Be brief")
    await run.until(lambda: run.screen.pane.state.options.system == "Be brief")
    await run.opens(AskLineScreen, "/system")


async def set_option(run: Run) -> None:
    await run.do("/set seed 5")
    await run.until(lambda: run.screen.pane.state.options.seed == 5)


async def follow(run: Run) -> None:
    await run.pilot.press("pageup")
    await run.until(lambda: not run.screen.pane.transcript.following)
    await run.do("/end")
    await run.until(lambda: run.screen.pane.transcript.following)


async def panel(run: Run) -> None:
    await run.do("/panel")
    await run.until(lambda: isinstance(run.pilot.app.screen, FleetScreen))


async def record(run: Run) -> None:
    file = run.screen.state_folder / "fleet-recording.jsonl"
    await run.do("/record")
    await run.until(lambda: run.screen.recorder is not None and file.exists())
    await run.do("/record")
    await run.until(lambda: run.screen.recorder is None and '{"end":"closed"}' in file.read_text("utf-8"))


async def editor(run: Run) -> None:
    await run.do("/editor")  # a terminal that could be handed over is there in tests/e2e only
    await run.until(lambda: "An editor cannot be started here" in " ".join(run.shown().split()))


async def model(run: Run) -> None:
    await run.opens(ChooseScreen, "/model")


async def theme(run: Run) -> None:
    await run.opens(ThemePicker, "/theme")


async def show_help(run: Run) -> None:
    await run.opens(HelpScreen, "/help")


async def leave(run: Run) -> None:
    run.runtime.say(TextArrived(ONE, "nothing is written now"))
    await run.do("/quit")
    await run.until(lambda: run.runtime.shut_down and not run.pilot.app.is_running)


async def rebalance(run: Run) -> None:
    await run.do("/rebalance")
    await run.until(lambda: run.runtime.proposals == 1)
    run.runtime.say(CutProposed(("stage  peer  layers", "    0  one   0-9"), ()))
    await run.until(lambda: isinstance(run.pilot.app.screen, ProposalScreen) and "one   0-9" in run.shown())
    await run.pilot.press("y")  # there is nothing to move to
    await run.until(lambda: run.pilot.app.screen is run.screen)
    run.runtime.say(CutProposed(("stage  peer  layers", "    0  one   0-9"), ((0, 11), (12, 19))))
    await run.until(lambda: isinstance(run.pilot.app.screen, ProposalScreen) and "Move (Y)" in run.shown())
    assert run.runtime.changes == []
    await run.pilot.press("y")
    await run.until(lambda: run.runtime.changes == ["cut ((0, 11), (12, 19))"])


async def add_peer(run: Run) -> None:
    await run.do("/add nowhere")
    await run.until(lambda: "write HOST:PORT" in run.shown())
    await run.do("/add 10.0.0.7:7077 the attic")
    await run.until(lambda: run.runtime.changes == ["add 10.0.0.7:7077 the attic"])
    await run.opens(AskLineScreen, "/add")
    await run.pilot.press(*"ab:1", "enter")
    await run.until(lambda: run.runtime.changes[1:] == ["add ab:1 "])


async def remove_peer(run: Run) -> None:
    await run.do("/remove attic")
    await run.until(lambda: run.runtime.changes == ["remove attic"])
    await run.opens(AskLineScreen, "/remove")
    await run.pilot.press("a", "b", "enter")
    await run.until(lambda: run.runtime.changes[1:] == ["remove ab"])


DONE: dict[str, Callable[[Run], Awaitable[None]]] = {
    "chat.stop": stop,
    "message.regenerate": regenerate,
    "message.continue": go_on,
    "message.edit": edit,
    "message.version": version,
    "message.up": up,
    "message.down": down,
    "message.copy": copy,
    "message.code": code,
    "message.thought": thought,
    "tab.new": new,
    "tab.close": close,
    "tab.reopen": reopen,
    "tab.rename": rename,
    "tab.next": following,
    "tab.previous": previous,
    "tab.right": move_right,
    "tab.left": move_left,
    "tab.show": show,
    "chat.find": find,
    "chat.export": export,
    "chat.delete": delete,
    "chat.system": system,
    "chat.set": set_option,
    "fleet.rebalance": rebalance,
    "fleet.add": add_peer,
    "fleet.remove": remove_peer,
    "view.follow": follow,
    "view.panel": panel,
    "view.record": record,
    "prompt.editor": editor,
    "model.switch": model,
    "app.theme": theme,
    "app.help": show_help,
    "app.quit": leave,
}


@pytest.mark.parametrize("command", sorted(set(BY_ID) - NUMBERED))
async def test_the_command_does_what_it_says(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    runtime = FakeRuntime()
    async with running(runtime, (100, 30), state=tmp_path) as pilot:
        run = Run(pilot, runtime)
        await run.prepare()
        await DONE[command](run)


async def test_tabs_are_shown_by_their_number() -> None:
    async with running(FakeRuntime()) as pilot:
        screen = chat_screen(pilot)
        for number in range(2, 10):
            await pilot.press("ctrl+n")
            await wait_until(pilot, lambda number=number: len(screen.tabs.numbers) == number)
        for number in (3, 9, 1, 2, 4, 5, 6, 7, 8):
            await pilot.press(f"alt+{number}")
            await wait_until(pilot, lambda number=number: screen.tabs.active == number)
        await type_text(pilot, "x")
        assert screen.pane.prompt.text == "x"
