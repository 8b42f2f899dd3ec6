from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import pytest
import trio

from fleetchat.chat.conversation import ChatFormat, Conversation
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.cli.ask_output import AnswerWriter, LineProgress, TerminalProgress
from fleetchat.cli.ask_session import Asking, ReplySettings, open_conversations
from fleetchat.errors import PromptError
from fleetchat.fleet.session import SamplingSettings
from fleetchat.fleet.telemetry import FinishReason
from tests.fakes.asked_fleet import AskedFleet, Script
from tests.fakes.small_tokenizers import byte_level

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}assistant: "
FORMAT = ChatFormat(ChatTokenizer(byte_level()), ChatTemplate(TEMPLATE))
SETTINGS = ReplySettings(
    sampling=SamplingSettings(),
    seed=7,
    max_tokens=100,
    stop_ids=frozenset({2}),
    stop_strings=("END",),
    context=200,
    new_decoder=FORMAT.decoder,
)


class Asked:
    """What came of asking a plan on a scripted fleet."""

    def __init__(self, plan: Sequence[tuple[str, ...]], scripts: list[Script]) -> None:
        self.fleet = AskedFleet(scripts)
        self.written: list[str] = []
        self.said: list[str] = []
        self.writer = AnswerWriter(self.written.append)
        self.asking = Asking(self.fleet, SETTINGS, LineProgress(self.said.append), self.writer)
        self._plan = plan

    async def run(self, *, stop_when_speaking: bool = False) -> None:
        opened = open_conversations(self._plan, lambda: Conversation(FORMAT, context=SETTINGS.context))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            if stop_when_speaking:
                nursery.start_soon(self._stop_when_speaking)
            await self.asking.run(opened)
            await self.writer.close()

    async def _stop_when_speaking(self) -> None:
        await self.fleet.speaking.wait()
        self.asking.stop()

    @property
    def stdout(self) -> str:
        return "".join(self.written)


@pytest.mark.trio
async def test_turns_continue_their_session_and_answers_are_separated() -> None:
    asked = Asked([("A", "B"), ("C",)], [Script(["one", " two"]), Script(["three\n"]), Script(["four"])])
    await asked.run()
    assert asked.stdout == "one two\n\n---\n\nthree\n\n---\n\nfour\n"
    assert [number for number, _ in asked.fleet.requests] == [0, 0, 1]
    assert asked.fleet.closed == [0, 1]
    assert [request.seed for _, request in asked.fleet.requests] == [7, 8, 7]
    assert [(one.prompt, one.turn, one.answer.text) for one in asked.asking.answers] == [
        (0, 0, "one two"),
        (0, 1, "three\n"),
        (1, 0, "four"),
    ]
    first, second, other = (list(request.token_ids) for _, request in asked.fleet.requests)
    assert second[: len(first) + 2] == [*first, 100, 101]
    assert FORMAT.tokenizer.decode(other) == "user: C\nassistant: "
    assert asked.asking.failure is None
    assert asked.said == []


@pytest.mark.trio
async def test_every_request_has_the_settings() -> None:
    asked = Asked([("A",)], [Script(["x"])])
    await asked.run()
    request = asked.fleet.requests[0][1]
    assert (request.max_tokens, request.stop_ids, request.stop_strings) == (100, frozenset({2}), ("END",))


@pytest.mark.trio
async def test_control_characters_do_not_reach_stdout() -> None:
    asked = Asked([("A",)], [Script(["\x1b[2J", "a\r", "\nb\u2028c"])])
    await asked.run()
    assert asked.stdout == "[2Ja\nb\nc\n"
    assert asked.asking.answers[0].answer.text == "\x1b[2Ja\r\nb\u2028c"


@pytest.mark.trio
async def test_a_stopped_reply_keeps_its_text_and_is_the_last() -> None:
    asked = Asked([("A", "B"), ("C",)], [Script(["half"], until_stopped=True)])
    await asked.run(stop_when_speaking=True)
    assert asked.stdout == "half\n"
    assert [one.answer.finish_reason for one in asked.asking.answers] == [FinishReason.CANCELLED]
    assert asked.said == ["stopped after 1 token"]


@pytest.mark.trio
async def test_a_cut_answer_says_so_and_can_be_continued() -> None:
    asked = Asked([("A", "B")], [Script(["half"], FinishReason.LENGTH), Script(["rest"])])
    await asked.run()
    assert asked.said == ["the answer was cut after 1 token (--max-tokens)"]
    assert asked.stdout == "half\n\n---\n\nrest\n"


def on_one_screen(asked: Asked) -> StringIO:
    """stdout and stderr of `ask` are one terminal."""
    screen = StringIO()

    def write(text: str) -> None:
        screen.write(text)

    asked.writer = AnswerWriter(write)
    asked.asking = Asking(asked.fleet, SETTINGS, TerminalProgress(screen, lambda: 80, str), asked.writer)
    return screen


@pytest.mark.trio
async def test_what_is_said_of_an_answer_stands_below_it_and_never_in_another() -> None:
    """The second conversation reads its prompt and is cut while the first is in mid-line."""
    first_speaks, second_ended = trio.Event(), trio.Event()

    async def while_the_second_speaks() -> None:
        first_speaks.set()
        await second_ended.wait()

    async def end_the_second() -> None:
        second_ended.set()

    scripts = [
        Script(["one ", "more"], FinishReason.LENGTH, pause=while_the_second_speaks),
        Script(["other"], FinishReason.LENGTH, before=first_speaks.wait, pause=end_the_second),
    ]
    asked = Asked([("A",), ("B",)], scripts)
    asked.fleet.places = 2
    screen = on_one_screen(asked)
    await asked.run()
    cut = "the answer was cut after {} (--max-tokens)\n"
    first, second = cut.format("2 tokens"), cut.format("1 token")
    assert screen.getvalue().split("\r")[-1] == f"one more\n{first}\n---\n\nother\n{second}"


@pytest.mark.trio
async def test_what_was_shown_of_a_prompt_goes_also_when_no_word_follows() -> None:
    asked = Asked([("A", "B")], [Script([]), Script(["two"])])
    screen = on_one_screen(asked)
    await asked.run()
    pieces = screen.getvalue().split("\r")
    assert pieces[1].startswith("reading the prompt: 0 of")
    assert pieces[1].endswith(" tokens")  # no separator behind it
    assert pieces[2] == " " * len(pieces[1])


@pytest.mark.trio
async def test_a_full_context_ends_its_conversation_but_not_the_others() -> None:
    asked = Asked([("A", "B" * 400), ("C",)], [Script(["half"], FinishReason.CONTEXT), Script(["other"])])
    await asked.run()
    assert asked.said == ["the answer was cut: the context of 200 tokens is full (--context)"]
    assert [(one.prompt, one.turn) for one in asked.asking.answers] == [(0, 0), (1, 0)]
    assert isinstance(asked.asking.failure, PromptError)
    assert asked.fleet.closed == [0, 1]


@pytest.mark.trio
async def test_a_failed_reply_is_kept_and_the_other_prompts_are_asked() -> None:
    failing = Script(["half"], FinishReason.ERROR, error=("stage 1 is lost", "start it again"))
    again = Script([], FinishReason.ERROR, error=("stage 1 is still lost", ""))
    asked = Asked([("A", "B"), ("C",), ("D",)], [failing, Script(["fine"]), again])
    await asked.run()
    assert asked.stdout == "half\n\n---\n\nfine\n\n---\n\n"
    assert [(one.prompt, one.turn) for one in asked.asking.answers] == [(0, 0), (1, 0), (2, 0)]
    failure = asked.asking.failure
    assert failure is not None
    assert (failure.message, failure.hint) == ("stage 1 is lost", "start it again")
    assert asked.said == ["error: stage 1 is still lost"]


@pytest.mark.trio
async def test_a_later_turn_that_does_not_fit_keeps_the_answers_before_it() -> None:
    asked = Asked([("A", "B" * 400)], [Script(["one"])])
    await asked.run()
    assert asked.stdout == "one\n"
    assert isinstance(asked.asking.failure, PromptError)


def test_a_first_prompt_that_does_not_fit_is_told_at_once() -> None:
    with pytest.raises(PromptError, match="the context holds 200 tokens"):
        open_conversations([("A",), ("B" * 400,)], lambda: Conversation(FORMAT, context=200))
