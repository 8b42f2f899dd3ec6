"""The conversation of the chat: a refusal says what to do in the chat."""

from __future__ import annotations

import pytest

from fleetchat.chat.conversation import ChatFormat
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.cli.chat_backend import LocalConversation
from fleetchat.errors import PromptError
from tests.chat.test_template import CHATML
from tests.fakes.small_tokenizers import byte_level

FORMAT = ChatFormat(ChatTokenizer(byte_level()), ChatTemplate(CHATML))


def test_a_full_chat_is_told_to_start_a_new_one() -> None:
    chat = LocalConversation(FORMAT, context=80)
    chat.ask("Hello")
    chat.answered("Hi", (40, 41))
    with pytest.raises(PromptError, match="the context holds 80 tokens") as refused:
        chat.ask("again " * 40)
    assert refused.value.hint == "start a new chat (Ctrl+N)"


def test_a_first_prompt_that_is_too_long_is_told_to_be_shortened() -> None:
    chat = LocalConversation(FORMAT, context=80)
    with pytest.raises(PromptError) as refused:
        chat.ask("word " * 100)
    assert "shorten the prompt" in (refused.value.hint or "")
