"""The model of the chat: what a turn becomes, and how a refusal reads."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from fleetchat.chat.conversation import ChatFormat
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.chat.turn import Turn
from fleetchat.cli.chat_backend import LocalModel
from fleetchat.errors import PromptError
from tests.chat.test_template import CHATML
from tests.fakes.small_tokenizers import byte_level

FORMAT = ChatFormat(ChatTokenizer(byte_level()), ChatTemplate(CHATML))
MANIFEST: Any = SimpleNamespace(model="tiny", stop_ids=(2,))


def model(system: str | None = "Be brief.") -> LocalModel:
    return LocalModel(MANIFEST, FORMAT, system, "refuse")


def rendered(turn: Turn, served: LocalModel) -> str:
    return FORMAT.tokenizer.decode(served.render(turn, context=500, max_tokens=50).ids)


def test_the_configured_system_prompt_unless_the_chat_has_its_own() -> None:
    turn = Turn((Message(Role.USER, "Hello"),))
    assert "Be brief." in rendered(turn, model())
    own = dataclasses.replace(turn, options=ChatOptions(system="Be long."))
    assert "Be long." in rendered(own, model())
    assert "Be brief." not in rendered(own, model())
    none = dataclasses.replace(turn, options=ChatOptions(system=""))
    assert rendered(none, model()) == rendered(turn, model(system=None))


def test_what_is_configured_is_told() -> None:
    assert model().configured == ChatOptions(system="Be brief.", overflow="refuse")


def test_a_full_chat_is_refused_in_numbers() -> None:
    with pytest.raises(PromptError, match="the context holds 80 tokens"):
        model().render(Turn((Message(Role.USER, "again " * 40),)), context=80, max_tokens=50)
