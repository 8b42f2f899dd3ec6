from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleetchat.chat.conversation import ChatFormat
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.overflow import FittedPrompt, fitted_prompt
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.errors import PromptError
from tests.chat.test_template import CHATML
from tests.fakes.small_tokenizers import byte_level

FORMAT = ChatFormat(ChatTokenizer(byte_level()), ChatTemplate(CHATML))
SYSTEM = Message(Role.SYSTEM, "Be brief.")


def talk(turns: int) -> list[Message]:
    """Turns with replies that were generated, and one more question."""
    said: list[Message] = []
    for turn in range(turns):
        said += [Message(Role.USER, f"question {turn}"), Message(Role.ASSISTANT, f"r{turn}", (40, 41, 42))]
    return [SYSTEM, *said, Message(Role.USER, "last question")]


def fitted(messages: Sequence[Message], context: int, *, drop: bool, continues: bool = False) -> FittedPrompt:
    return fitted_prompt(
        FORMAT, messages, context=context, max_tokens=20, drop_oldest=drop, continues=continues
    )


def test_what_fits_is_left_alone() -> None:
    assert fitted(talk(3), 2000, drop=True).notes == ()
    assert fitted(talk(3), 2000, drop=True).ids == fitted(talk(3), 2000, drop=False).ids


def test_the_oldest_turns_go_until_a_reply_has_room_and_the_note_counts() -> None:
    whole = len(fitted(talk(6), 2000, drop=True).ids)
    prompt = fitted(talk(6), whole, drop=True)
    assert len(prompt.ids) <= whole - 20
    assert prompt.ids == fitted([SYSTEM, *talk(6)[3:]], 2000, drop=True).ids
    assert prompt.notes == (
        f"2 old messages were left out of the prompt ({whole - len(prompt.ids)} tokens): "
        f"the context holds {whole:,} tokens",
    )


def test_the_present_question_is_never_dropped() -> None:
    with pytest.raises(PromptError, match="the prompt has"):
        fitted([SYSTEM, Message(Role.USER, "word " * 100)], 80, drop=True)
    alone = fitted([SYSTEM, Message(Role.USER, "last question")], 2000, drop=True)
    assert fitted(talk(6), len(alone.ids) + 20, drop=True).ids == alone.ids


def test_refusing_says_the_numbers_and_the_way_out() -> None:
    with pytest.raises(PromptError, match="the context holds 80 tokens") as refused:
        fitted(talk(6), 80, drop=False)
    assert "new chat" in (refused.value.hint or "")


def test_a_first_prompt_that_is_too_long_is_told_to_be_shortened() -> None:
    with pytest.raises(PromptError) as refused:
        fitted([Message(Role.USER, "word " * 100)], 80, drop=False)
    assert "shorten the prompt" in (refused.value.hint or "")
    with pytest.raises(PromptError, match="empty"):
        fitted([], 80, drop=False)


def test_a_reply_is_continued_from_its_ids_or_its_text() -> None:
    asked = fitted(talk(0), 2000, drop=False).ids
    begun = [*talk(0), Message(Role.ASSISTANT, "ab", (70, 71))]
    assert fitted(begun, 2000, drop=False, continues=True).ids == (*asked, 70, 71)
    foreign = [*talk(0), Message(Role.ASSISTANT, "ab")]
    expected = (*asked, *FORMAT.tokenizer.encode("ab", specials=False))
    assert fitted(foreign, 2000, drop=False, continues=True).ids == expected
