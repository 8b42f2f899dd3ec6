from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.chat.conversation import ChatFormat, Conversation, PlainText, check_room
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.errors import PromptError, ShardDamaged
from tests.chat.test_template import CHATML
from tests.fakes.small_tokenizers import byte_level

FORMAT = ChatFormat(ChatTokenizer(byte_level()), ChatTemplate(CHATML))


def conversation(context: int = 1000, system: str | None = None) -> Conversation:
    return Conversation(FORMAT, context=context, system=system)


def test_a_conversation_grows_turn_by_turn() -> None:
    one = conversation()
    first = one.ask("Hello")
    assert FORMAT.tokenizer.decode(first) == "system\nYou are a test\nuser\nHello\nassistant\n"
    one.answered("Hi", (40, 41))
    assert one.ask("More")[: len(first) + 2] == (*first, 40, 41)
    assert one.messages == (
        Message(Role.USER, "Hello"),
        Message(Role.ASSISTANT, "Hi", (40, 41)),
        Message(Role.USER, "More"),
    )
    one.withdraw()
    assert one.messages[-1] == Message(Role.ASSISTANT, "Hi", (40, 41))


def test_a_system_text_replaces_the_templates_own() -> None:
    token_ids = conversation(system="Be brief").ask("Hello")
    assert FORMAT.tokenizer.decode(token_ids) == "system\nBe brief\nuser\nHello\nassistant\n"


def test_no_system_text_is_the_templates_own() -> None:
    token_ids = conversation(system="").ask("Hello")
    assert FORMAT.tokenizer.decode(token_ids).startswith("system\nYou are a test\n")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_prompt_is_refused(text: str) -> None:
    one = conversation()
    with pytest.raises(PromptError, match="the prompt is empty"):
        one.ask(text)
    assert one.messages == ()


def test_a_prompt_that_cannot_be_asked_was_not_added() -> None:
    one = conversation(context=10)
    with pytest.raises(PromptError, match="the context holds 10 tokens"):
        one.ask("Hello")
    with pytest.raises(PromptError, match="surrogate"):
        one.ask("\udce9")
    assert one.messages == ()


def test_a_prompt_must_leave_room_for_one_token() -> None:
    check_room([0] * 99, 100)
    with pytest.raises(PromptError, match=r"has 1,100 tokens, but a prompt may have at most 1,099") as caught:
        check_room([0] * 1100, 1100)
    assert caught.value.hint is not None


def test_plain_text_is_continued_without_a_template() -> None:
    plain = PlainText(FORMAT, context=100)
    first = plain.ask("<|im_start|>The")
    assert first == tuple(FORMAT.tokenizer.encode("<|im_start|>The", specials=True))
    plain.answered(" end", (70, 71))
    more = tuple(FORMAT.tokenizer.encode(" and", specials=True))
    assert plain.ask(" and") == (*first, 70, 71, *more)


def test_plain_text_keeps_what_it_was_when_it_gets_too_long() -> None:
    plain = PlainText(FORMAT, context=12)
    first = plain.ask("a b")
    with pytest.raises(PromptError, match="may have at most 11"):
        plain.ask("x1" * 20)
    assert plain.ask("c")[: len(first)] == first


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
