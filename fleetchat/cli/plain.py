"""`fleetchat --plain`: the same chats as lines of text, for screen readers and dumb terminals.

Nothing is drawn over, nothing is coloured: what is said stands below what was said before. Ctrl+C stops a
reply, twice or at the prompt it leaves; so does the end of the input.
"""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetchat.app import events
from fleetchat.app.chat_state import ChatState
from fleetchat.app.commands import BY_SLASH, parse_slash
from fleetchat.app.events import ChatNumber, RuntimeControl, RuntimeEvent
from fleetchat.app.option_words import changed_words, options_words
from fleetchat.app.words import UNANSWERED, reply_footer
from fleetchat.chat.checkpoints import CHECKPOINT, grown_enough
from fleetchat.chat.messages import Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.sanitise import Sanitiser, sanitise
from fleetchat.chat.tree import Node
from fleetchat.errors import FleetError

if TYPE_CHECKING:
    from fleetchat.chat.history import History

HELP = """/new begins an empty chat, /retry draws the last reply anew, /continue goes on with it,
/set NAME VALUE and /system TEXT change this chat, /quit leaves. Ctrl+C stops a reply.
A line that ends with \\ goes on in the next one."""

COMMANDS = {name: BY_SLASH[name] for name in ("new", "retry", "continue", "set", "system", "help", "quit")}

Read = Callable[[str], str]


class PlainChat:
    """One conversation at a time. `read` asks for a line and raises EOFError at the end of the input."""

    def __init__(self, runtime: RuntimeControl, history: History, read: Read) -> None:
        self._runtime = runtime
        self._history = history
        self._read = read
        self._events: queue.SimpleQueue[RuntimeEvent] = queue.SimpleQueue()
        self._model, self._context = "", 0
        self._told: list[str] = []  # what befell the fleet: said after the reply, not in the middle of it
        self._configured: ChatOptions | None = None
        self._number = 0
        self._state = self._new_state()

    def run(self) -> None:
        """Until the user leaves. Raises FleetError when the fleet cannot be started or fails."""
        self._runtime.start(self._events.put)
        self._wait_ready()
        say(f"Chat with {self._model}. {HELP}")
        while (line := self._line()) is not None:
            if line.strip():
                self._carry_out(line)

    def _line(self) -> str | None:
        """What was typed; None to leave."""
        lines: list[str] = []
        try:
            while (line := self._read("You: " if not lines else "   : ")).endswith("\\"):
                lines.append(line[:-1])
        except (EOFError, KeyboardInterrupt):
            return None
        text = sanitise("\n".join([*lines, line]))
        return None if text.lower().split()[:1] in (["/quit"], ["/exit"]) else text

    def _carry_out(self, text: str) -> None:
        slash = parse_slash(text, COMMANDS)
        if slash is None:
            asked = self._state.ask(text, time.time())
            self._answer(self._state.begin_reply(self._model, time.time()), asked)
        elif slash.command is None:
            say(complaint(text) or slash.complaint)
        else:
            self._do(slash.command.slash, slash.argument)

    def _do(self, name: str, argument: str) -> None:
        match name:
            case "new":
                self._runtime.close_chat(self._state.number)
                self._state = self._new_state()
                say("A new chat.")
            case "retry":
                self._retry()
            case "continue":
                self._continue()
            case "set":
                option, _, value = argument.partition(" ")
                self._set(option, value)
            case "system":
                self._set("system", argument)
            case "help":
                say(HELP)

    def _retry(self) -> None:
        if not self._state.path:
            say("There is no reply yet.")
            return
        reply, gone = self._state.regenerate(self._state.path[-1], self._model, time.time())
        if gone is not None:
            self._history.remove_message(gone.id)
        self._answer(reply, another=True)

    def _continue(self) -> None:
        path = self._state.path
        if not path or not path[-1].text or path[-1].role is not Role.ASSISTANT:
            say("There is no reply to go on with.")
        else:
            self._answer(self._state.begin_continuation(self._model))

    def _set(self, name: str, value: str) -> None:
        if not name:
            say(options_words(self._state.options, self._configured))
            return
        try:
            self._state.options = self._state.options.changed(name, value)
        except ValueError as error:
            say(str(error))
        else:
            say(changed_words(self._state.options, name))
            if self._state.stored:
                self._history.set_options(self._state.id, self._state.options)

    def _answer(self, reply: Node, *before: Node, another: bool = False) -> None:
        state = self._state
        state.stored = True
        self._history.add_chat(state.id, state.title, time.time(), state.options)
        for node in (*before, reply):
            self._history.put(state.id, node)
        self._runtime.submit(state.number, state.turn(another=another))
        node = self._follow()
        self._history.put(state.id, node)
        self._history.set_head(state.id, state.head)
        say(reply_footer(node, self._context))
        while self._told:
            say(self._told.pop(0))
        if not node.text:
            say(f"{UNANSWERED}; /retry answers it")

    def _follow(self) -> Node:
        """Print the reply as it comes. The first Ctrl+C stops it, the second leaves.

        To a continuation the model may have nothing to add: then it has no line of its own.
        """
        sanitiser, stopped = Sanitiser(), False
        saved, characters = time.monotonic(), 0
        begun = self._state.continued is None
        if begun:
            self._begin_reply()
        while True:
            try:
                match self._events.get():
                    case events.TextArrived(chat, text) if chat == self._state.number:
                        if not begun:
                            begun = True
                            self._begin_reply()
                        print(sanitiser.push(text), end="", flush=True)
                        node = self._state.take(text)
                        if node is not None and (
                            grown_enough(len(node.text), characters) or time.monotonic() - saved > CHECKPOINT
                        ):
                            saved, characters = time.monotonic(), len(node.text)
                            self._history.checkpoint(node.id, node.text)
                    case events.Told(told):
                        self._told.append(told)
                    case events.ReplyFinished(chat, answer) if chat == self._state.number:
                        if begun:
                            print(flush=True)
                        finished = self._state.finish(answer, seen=True)
                        assert finished is not None
                        return finished
            except KeyboardInterrupt:
                if stopped:
                    raise
                stopped = True
                self._runtime.stop(self._state.number)

    def _begin_reply(self) -> None:
        print(f"{sanitise(self._model)}: ", end="", flush=True)

    def _wait_ready(self) -> None:
        told = ""
        while True:
            match self._events.get():
                case events.BuildProgressed(step, _, _) if step != told:
                    told = step
                    print(f"Shards: {sanitise(step)}", file=sys.stderr, flush=True)
                case events.FleetReady(model, context, configured):
                    self._model, self._context, self._configured = model, context, configured
                    return
                case events.RuntimeFailed(message, hint):
                    raise FleetError(message, hint=hint or None)

    def _new_state(self) -> ChatState:
        self._number += 1
        return ChatState(ChatNumber(self._number))


def complaint(text: str) -> str:
    """Of a command that needs the screen; nothing for one that does not exist."""
    slash = parse_slash(text)
    if slash is None or slash.command is None:
        return ""
    return f"/{slash.command.slash} works on the screen, not with --plain; /help says what does"


def say(text: str) -> None:
    """A line of the program itself."""
    print(sanitise(text), flush=True)
