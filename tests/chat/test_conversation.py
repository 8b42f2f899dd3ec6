from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.chat.conversation import ChatFormat, Conversation, check_room
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.errors import PromptError, ShardDamaged
from tests.chat.test_template import CHATML
from tests.fakes.small_tokenizers import byte_level

FORMAT = ChatFormat(ChatTokenizer(byte_level()), ChatTemplate(CHATML))


def conversation(context: int = 1000, system: str | None = None) -> Conversation:
    return Conversation(FORMAT, context=context, system=system)


def text_of(one: Conversation) -> str:
    return FORMAT.tokenizer.decode(one.render())


def test_a_conversation_grows_and_shrinks() -> None:
    one = conversation()
    one.add_user("Hello")
    assert text_of(one) == "system\nYou are a test\nuser\nHello\nassistant\n"
    one.add_assistant("Hi", (40, 41))
    one.add_user("More")
    assert one.messages == (
        Message(Role.USER, "Hello"),
        Message(Role.ASSISTANT, "Hi", (40, 41)),
        Message(Role.USER, "More"),
    )
    one.drop_last()
    assert one.messages[-1] == Message(Role.ASSISTANT, "Hi", (40, 41))


def test_a_system_text_replaces_the_templates_own() -> None:
    one = conversation(system="Be brief")
    one.add_user("Hello")
    assert text_of(one) == "system\nBe brief\nuser\nHello\nassistant\n"


def test_no_system_text_is_the_templates_own() -> None:
    one = conversation(system="")
    one.add_user("Hello")
    assert text_of(one).startswith("system\nYou are a test\n")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_prompt_is_refused(text: str) -> None:
    one = conversation()
    with pytest.raises(PromptError, match="the prompt is empty"):
        one.add_user(text)
    assert one.messages == ()


def test_a_prompt_must_leave_room_for_one_token() -> None:
    check_room([0] * 99, 100)
    with pytest.raises(
        PromptError, match=r"the prompt has 1,100 tokens, but a prompt may have at most 1,099"
    ) as caught:
        check_room([0] * 1100, 1100)
    assert caught.value.hint is not None
    one = conversation(context=10)
    one.add_user("Hello")
    with pytest.raises(PromptError, match="the context holds 10 tokens"):
        one.render()


def test_a_build_is_loaded_with_the_names_of_its_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(byte_level(), encoding="utf-8")
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}|{{ eos_token }}", encoding="utf-8")
    loaded = ChatFormat.load(
        tmp_path / "tokenizer.json", tmp_path / "chat_template.jinja", bos_id=1, stop_ids=(2, 0)
    )
    assert loaded.template.render([], add_generation_prompt=True) == "<|im_start|>|<|im_end|>"
    unnamed = ChatFormat.load(
        tmp_path / "tokenizer.json", tmp_path / "chat_template.jinja", bos_id=None, stop_ids=()
    )
    assert unnamed.template.render([], add_generation_prompt=True) == "|"


def test_a_build_without_its_tokenizer_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(ShardDamaged, match=r"tokenizer\.json"):
        ChatFormat.load(tmp_path / "tokenizer.json", tmp_path / "t.jinja", bos_id=None, stop_ids=())
