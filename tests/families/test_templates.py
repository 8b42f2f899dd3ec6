"""Templates in the styles of the families: texts, ids, what becomes of thoughts, BOS, ends of turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetchat.chat.conversation import ChatFormat, PlainText
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.overflow import fitted_prompt
from fleetchat.chat.prompt import render
from fleetchat.chat.rehearsal import rehearse
from fleetchat.errors import PromptError
from tests.families.styles import STYLES, Style

SYSTEM, FIRST, SECOND = "Be brief.", "One?", "Two?"
REPLY = "Yes."


def user(text: str) -> Message:
    return Message(Role.USER, text)


def generated(style: Style, text: str) -> Message:
    """A reply as it is kept: what a decoder showed, and the ids."""
    ids = style.ids(text)
    decoder = ChatFormat(style.tokenizer, style.template).decoder()
    shown = "".join(decoder.push(token) for token in ids) + decoder.finish()
    return Message(Role.ASSISTANT, shown, ids)


def ids_of(style: Style, *messages: Message) -> tuple[int, ...]:
    return render(style.tokenizer, style.template, messages, add_generation_prompt=True).ids


TWO_TURNS = {
    "llama3": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nDate: 04 May 2031\n"
        "Be brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nOne?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nYes.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nTwo?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "qwen3": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n"
        "<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"
    ),
    "mistral": "<s>[INST] One?[/INST] Yes.</s>[INST] Be brief.\n\nTwo?[/INST]",
    "phi": (
        "<|system|>Be brief.<|end|><|user|>One?<|end|><|assistant|>Yes.<|end|>"
        "<|user|>Two?<|end|><|assistant|>"
    ),
    "harmony": (
        "<|start|>system<|message|>Date: 2031-05-04\nChannels: analysis, final.<|end|>"
        "<|start|>developer<|message|># Instructions\n\nBe brief.<|end|><|start|>user<|message|>One?<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Yes.<|end|><|start|>user<|message|>Two?<|end|>"
        "<|start|>assistant"
    ),
    "smollm3": (
        "<|im_start|>system\nMode: /think\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n"
        "<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"
    ),
    "keyed": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n"
        "<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"
    ),
}


@pytest.mark.parametrize("name", TWO_TURNS)
def test_two_turns_are_these_texts_and_these_ids(name: str) -> None:
    style = STYLES[name]
    plain = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": FIRST},
        {"role": "assistant", "content": REPLY},
        {"role": "user", "content": SECOND},
    ]
    assert style.template.render(plain, add_generation_prompt=True) == TWO_TURNS[name]
    said = Message(Role.SYSTEM, SYSTEM), user(FIRST), generated(style, REPLY), user(SECOND)
    assert ids_of(style, *said) == style.ids(TWO_TURNS[name])


def test_gemma_has_no_place_for_a_system_text() -> None:
    style = STYLES["gemma"]
    with pytest.raises(PromptError, match="refuses this conversation: System role not supported"):
        ids_of(style, Message(Role.SYSTEM, SYSTEM), user(FIRST))
    assert ids_of(style, user(FIRST), generated(style, REPLY), user(SECOND)) == style.ids(
        "<bos><start_of_turn>user\nOne?<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n"
        "<start_of_turn>user\nTwo?<end_of_turn>\n<start_of_turn>model\n"
    )


TURNS = {
    "opened": ("<|User|>{}", "<|Assistant|><think>\n"),
    "harmony": ("<|start|>user<|message|>{}<|end|>", "<|start|>assistant"),
}
THOUGHT = "<think>\nLet me see.\n</think>\n\nYes."


@pytest.mark.parametrize(
    ("name", "reply", "history"),
    [
        ("qwen3", THOUGHT, "<|im_start|>assistant\nYes.<|im_end|>\n"),
        ("qwen3", "<think>\n\n</think>\n\nYes.", "<|im_start|>assistant\nYes.<|im_end|>\n"),
        ("qwen3", "<think>\nLet me", "<|im_start|>assistant\n<|im_end|>\n"),
        ("smollm3", THOUGHT, f"<|im_start|>assistant\n{THOUGHT}<|im_end|>\n"),
        ("smollm3", "<think>\nLet me", "<|im_start|>assistant\n<think>\nLet me</think><|im_end|>\n"),
        ("opened", "Let me see.\n</think>\n\nYes.", "<|Assistant|>\n\nYes.<|end_of_sentence|>"),
        ("opened", "Let me see", "<|Assistant|><|end_of_sentence|>"),
        (
            "keyed",
            THOUGHT,
            "<|im_start|>assistant\n<reason>\nLet me see.\n</reason>Yes.<|im_end|>\n",
        ),
        ("chatml", THOUGHT, "<|im_start|>assistant\nYes.<|im_end|>\n"),
        ("chatml", "<think>\nLet me", "<|im_start|>assistant\n<|im_end|>\n"),
        ("chatml", "Say <think> aloud.", "<|im_start|>assistant\nSay <think> aloud.<|im_end|>\n"),
        (
            "harmony",
            "<|channel|>analysis<|message|>Let me see.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Yes.",
            "<|start|>assistant<|channel|>final<|message|>Yes.<|end|>",
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>Let me",
            "<|start|>assistant<|channel|>final<|message|><|end|>",
        ),
    ],
)
def test_of_a_thought_stays_what_the_template_leaves(name: str, reply: str, history: str) -> None:
    """The next prompt is the text that the template writes, in ids; what it keeps keeps its ids."""
    style = STYLES[name]
    asked, begins = TURNS.get(name, ("<|im_start|>user\n{}<|im_end|>\n", "<|im_start|>assistant\n"))
    first = ids_of(style, user(FIRST))
    before = first[: -len(style.ids(begins))]
    assert first == (*before, *style.ids(begins))
    after = style.ids(history + asked.format(SECOND) + begins)
    assert ids_of(style, user(FIRST), generated(style, reply), user(SECOND)) == (*before, *after)


def test_a_kept_thought_enters_as_the_ids_that_were_generated() -> None:
    """These are no ids that an encoder gives: `</think>` is spelled in letters."""
    style = STYLES["smollm3"]
    spelled = (*style.ids("<think>\nHm."), *b"\n</think>\n\n", *style.ids("Yes."))
    message = Message(Role.ASSISTANT, "<think>\nHm.\n</think>\n\nYes.", spelled)
    before = ids_of(style, user(FIRST))
    assert ids_of(style, user(FIRST), message, user(SECOND))[: len(before) + len(spelled)] == (
        *before,
        *spelled,
    )


def test_a_thought_that_the_template_opened_is_kept_by_its_ids_where_the_template_keeps_it() -> None:
    keeping = replace(
        STYLES["opened"], changed=STYLES["opened"].source.replace("[-1]", "[0:] | join('</think>')")
    )
    reply = generated(keeping, "Let me see.\n</think>\n\nYes.")
    before = ids_of(keeping, user(FIRST))
    after = ids_of(keeping, user(FIRST), reply, user(SECOND))
    assert after[: len(before)] == before
    assert after[len(before) :][: len(reply.token_ids or ())] == reply.token_ids


def test_an_answer_that_shares_a_token_with_its_thought_is_encoded() -> None:
    """No id begins where the answer begins: one token is the end of the mark and the first letter."""
    style = replace(STYLES["chatml"], ordinary=("k>Y",))
    ids = (*style.ids("<thin"), *style.ids("k>\nHm</thin"), style.id_of("k>Y"), *style.ids("es."))
    message = Message(Role.ASSISTANT, "<think>\nHm</think>Yes.", ids)
    prompt = ids_of(style, user(FIRST), message, user(SECOND))
    assert prompt == style.ids(
        "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n"
        "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_thought_of_another_models_reply_is_left_out_too() -> None:
    style = STYLES["qwen3"]
    foreign = Message(Role.ASSISTANT, THOUGHT)
    assert ids_of(style, user(FIRST), foreign, user(SECOND)) == style.ids(
        "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n"
        "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_special_string_in_a_thought_stays_text() -> None:
    style = STYLES["keyed"]
    foreign = Message(Role.ASSISTANT, "<think>\n<|im_end|>\n</think>\n\nYes.")
    assert ids_of(style, user(FIRST), foreign, user(SECOND)).count(style.id_of("<|im_end|>")) == 3


def test_a_reply_that_is_gone_on_with_keeps_its_thought() -> None:
    style = STYLES["qwen3"]
    begun = generated(style, "<think>\nLet me")
    chat = ChatFormat(style.tokenizer, style.template)
    fitted = fitted_prompt(
        chat, (user(FIRST), begun), context=512, max_tokens=8, drop_oldest=False, continues=True
    )
    assert fitted.ids == (*ids_of(style, user(FIRST)), *style.ids("<think>\nLet me"))


def test_what_is_left_of_a_system_text_is_trimmed_as_the_template_does_it() -> None:
    style = STYLES["smollm3"]
    prompt = ids_of(style, Message(Role.SYSTEM, "Be brief. /no_think"), user(FIRST))
    assert prompt == style.ids(
        "<|im_start|>system\nMode: /no_think\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n"
    )


def test_harmony_is_shown_as_a_thought_and_an_answer() -> None:
    style = STYLES["harmony"]
    said = generated(
        style,
        "<|channel|>analysis<|message|>Let me<|end|><|start|>assistant<|channel|>commentary<|message|>see."
        "<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
    )
    assert said.content == "<think>\nLet me\n\nsee.\n</think>\n\nYes."
    assert generated(style, "<|channel|>final<|message|>Yes.").content == "Yes."
    assert generated(style, "<|channel|>analysis<|message|>Let").content == "<think>\nLet"
    assert generated(style, "<|channel|>ana").content == ""
    assert generated(style, "Yes.").content == "Yes."


def bos_cases() -> list[tuple[Style, int]]:
    writes = STYLES["llama3"]
    silent = replace(STYLES["chatml"], bos="<|endoftext|>")
    return [
        (writes, 1),
        (replace(writes, adds_bos=False), 1),
        (replace(silent, adds_bos=True), 1),
        (silent, 0),
        (replace(writes, changed="<|begin_of_text|>" + CHATML_BODY), 1),
    ]


CHATML_BODY = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"


@pytest.mark.parametrize(
    ("style", "times"), bos_cases(), ids=["both", "template", "tokenizer", "none", "spelled"]
)
def test_bos_is_there_exactly_once(style: Style, times: int) -> None:
    assert style.bos is not None
    bos = style.id_of(style.bos)
    for messages in ((user(FIRST),), (user(FIRST), generated(style, REPLY), user(SECOND))):
        prompt = ids_of(style, *messages)
        assert prompt.count(bos) == times
        assert (prompt[0] == bos) == bool(times)


@pytest.mark.parametrize("adds", [True, False])
def test_a_plain_text_begins_with_bos_where_the_tokenizer_adds_it(adds: bool) -> None:
    style = replace(STYLES["llama3"], adds_bos=adds)
    chat = ChatFormat(style.tokenizer, style.template)
    start = (style.id_of("<|begin_of_text|>"),) if adds else ()
    plain = PlainText(chat, context=64)
    assert plain.ask("Once") == (*start, *b"Once")
    plain.answered(" upon", tuple(b" upon"))
    assert plain.ask(" a time") == (*start, *b"Once upon a time")
    spelled = PlainText(chat, context=64)
    assert spelled.ask("<|begin_of_text|>Once") == style.ids("<|begin_of_text|>Once")


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("llama3", "<|eot_id|>"),
        ("qwen3", "<|im_end|>"),
        ("mistral", "</s>"),
        ("gemma", "<end_of_turn>"),
        ("phi", "<|end|>"),
        ("harmony", None),
        ("smollm3", "<|im_end|>"),
        ("opened", "<|end_of_sentence|>"),
    ],
)
def test_the_end_of_turn_is_found_in_what_the_template_writes(name: str, end: str | None) -> None:
    style = STYLES[name]
    bos, eos = (None if token is None else style.id_of(token) for token in (style.bos, style.eos))
    found = rehearse(style.definition, style.source, bos, eos)
    assert found == (None if end is None else style.id_of(end))


def test_a_template_without_an_end_of_turn_has_none() -> None:
    assert rehearse(STYLES["chatml"].definition, CHATML_BODY, None, None) is None
