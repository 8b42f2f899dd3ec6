from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.chat.markers import Span
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.prompt import encode_run, render
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.errors import PromptError, SourceError
from tests.chat.test_template import CHATML
from tests.fakes.small_tokenizers import byte_fallback, byte_level, swallowing

TOKENIZER = ChatTokenizer(byte_level())
TEMPLATE = ChatTemplate(CHATML)
START, END = 1, 2
TRIMMING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = "{% for m in messages %}{{ bos_token }} [INST] {{ m.content.strip() }} [/INST] {% endfor %}"
MERGING = "<|im_start|>user\n{% for m in messages %}{{ m.content }}{% endfor %}<|im_end|>\n"

CONTENTS = st.text() | st.text(alphabet=st.sampled_from("a 1\n\t\u2028é👍{}%|<>"), min_size=1)


def user(text: str) -> Message:
    return Message(Role.USER, text)


def ids(
    messages: list[Message], template: ChatTemplate = TEMPLATE, tokenizer: ChatTokenizer = TOKENIZER
) -> list[int]:
    return list(render(tokenizer, template, messages, add_generation_prompt=True).ids)


def reference(
    messages: list[Message], template: ChatTemplate = TEMPLATE, tokenizer: ChatTokenizer = TOKENIZER
) -> list[int]:
    """The tokenizer's encoding of the plain rendering."""
    plain = [{"role": message.role.value, "content": message.content} for message in messages]
    return tokenizer.encode(template.render(plain, add_generation_prompt=True), specials=True)


@pytest.mark.parametrize("source", [CHATML, TRIMMING, MERGING], ids=["chatml", "trimming", "merging"])
@pytest.mark.parametrize("definition", [byte_level(), swallowing()], ids=["plain", "swallowing"])
@settings(max_examples=100)
@given(system=CONTENTS, text=CONTENTS)
def test_without_special_strings_it_is_the_reference(
    source: str, definition: str, system: str, text: str
) -> None:
    tokenizer, template = ChatTokenizer(definition), ChatTemplate(source)
    messages = [Message(Role.SYSTEM, system), user(text)]
    assert ids(messages, template, tokenizer) == reference(messages, template, tokenizer)


@settings(max_examples=100)
@given(texts=st.lists(CONTENTS, min_size=1, max_size=3))
def test_a_vocabulary_that_marks_the_first_word_is_the_reference_too(texts: list[str]) -> None:
    tokenizer, template = ChatTokenizer(byte_fallback()), ChatTemplate(LLAMA, tokens={"bos_token": "<s>"})
    messages = [user(text) for text in texts]
    assert ids(messages, template, tokenizer) == reference(messages, template, tokenizer)


@settings(max_examples=150)
@given(
    pieces=st.lists(
        st.sampled_from(
            ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|im_", "end|>", "<", "\n", " ", "user"]
        ),
        min_size=1,
    ),
    source=st.sampled_from([CHATML, TRIMMING, MERGING]),
    definition=st.sampled_from([byte_level(), swallowing()]),
)
def test_a_special_string_in_a_content_stays_text(pieces: list[str], source: str, definition: str) -> None:
    tokenizer, template = ChatTokenizer(definition), ChatTemplate(source)
    harmless = [token for token in ids([user("x")], template, tokenizer) if token <= END]
    token_ids = ids([user("".join(pieces))], template, tokenizer)
    assert [token for token in token_ids if token <= END] == harmless


def test_the_text_of_a_special_string_is_unchanged() -> None:
    token_ids = ids([user("say <|im_end|> now")])
    assert TOKENIZER.decode(token_ids) == ("system\nYou are a test\nuser\nsay <|im_end|> now\nassistant\n")


def test_a_special_string_made_of_content_and_template_stays_text() -> None:
    token_ids = ids([user("<|im_"), user("end|>")], ChatTemplate(MERGING))
    assert token_ids.count(END) == 1
    glued = encode_run(TOKENIZER, [Span("<|im_start|>a", True), Span("<|im_", False), Span("end|>", True)])
    assert glued[0] == START
    assert END not in glued


def test_a_reply_enters_as_the_ids_that_were_generated() -> None:
    generated = (300, 7, 7, 301)  # not what any encoder would give
    messages = [user("one"), Message(Role.ASSISTANT, "text for people <|im_end|>", generated), user("two")]
    first = ids(messages[:1])
    after = TOKENIZER.encode(
        "<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n", specials=True
    )
    assert ids(messages) == [*first, *generated, *after]


@settings(max_examples=60)
@given(turns=st.lists(st.tuples(CONTENTS, st.lists(st.integers(0, 400)), CONTENTS), min_size=1, max_size=4))
def test_every_prompt_and_its_reply_begin_the_next_prompt(turns: list[tuple[str, list[int], str]]) -> None:
    messages: list[Message] = []
    before: list[int] = []
    for text, generated, shown in turns:
        messages.append(user(text))
        prompt = ids(messages)
        assert prompt[: len(before)] == before
        messages.append(Message(Role.ASSISTANT, shown, tuple(generated)))
        before = [*prompt, *generated]


def test_a_reply_without_tokens_leaves_its_place() -> None:
    token_ids = ids([user("one"), Message(Role.ASSISTANT, "", ()), user("two")])
    assert "assistant\n\nuser\ntwo" in TOKENIZER.decode(token_ids)


def test_a_reply_of_another_model_is_encoded() -> None:
    messages = [user("one"), Message(Role.ASSISTANT, "<|im_start|>said"), user("two")]
    assert ids(messages).count(START) == 5
    assert "<|im_start|>said" in TOKENIZER.decode(ids(messages))


def test_the_reply_starts_behind_the_prompt() -> None:
    prompt = render(TOKENIZER, TEMPLATE, [user("one")], add_generation_prompt=True)
    assert prompt.reply_start == len(prompt.ids)


def test_private_use_characters_in_a_content_are_no_markers() -> None:
    text = "\U000f00000\U000f0000 \U000f00010\U000f0001 \U000f0002"
    assert text in TOKENIZER.decode(ids([user(text)]))


def test_a_template_that_leaves_a_message_out_is_told() -> None:
    template = ChatTemplate("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    with pytest.raises(PromptError, match=r"leaves out message 1 \(system\)"):
        ids([Message(Role.SYSTEM, "be brief"), user("hello")], template)


@pytest.mark.parametrize(
    "expression", ["m.content[3:]", "m.content[:-3]", "m.content | reverse", "m.content | upper | e"]
)
def test_a_template_that_tears_a_message_is_refused_or_faithful(expression: str) -> None:
    template = ChatTemplate("{% for m in messages %}{{ " + expression + " }}{% endfor %}")
    if "upper" in expression:
        assert TOKENIZER.decode(ids([user("a<b")], template)) == "A&lt;B"
        return
    with pytest.raises((SourceError, PromptError), match=r"message 1 \(user\)"):
        ids([user("hello")], template)
