"""tokenizer.json, template and stop ids, from a GGUF and from an exported folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from fleetchat.cutter.convert import TokenizerAnswer
from fleetchat.cutter.gguf_file import GgufFile
from fleetchat.cutter.template_check import checked
from fleetchat.cutter.vocabulary import (
    AWKWARD_TEXTS,
    Vocabulary,
    check_tokenizer,
    from_folder,
    from_gguf,
)
from fleetchat.errors import BuildError, SourceError
from tests.cutter.tiny_gguf import TEMPLATE


@pytest.fixture
def vocabulary(tiny_gguf: Path) -> Vocabulary:
    with GgufFile(tiny_gguf) as gguf:
        return from_gguf(gguf)


def answers(vocabulary: Vocabulary) -> TokenizerAnswer:
    """What a source's tokenizer says that agrees."""
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer)
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in AWKWARD_TEXTS]
    texts = [tokenizer.decode(one, skip_special_tokens=False) for one in ids]
    return TokenizerAnswer(tuple(map(tuple, ids)), tuple(texts))


def test_a_gguf_gives_ids_template_and_stop_ids(vocabulary: Vocabulary) -> None:
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer)
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert tokenizer.encode(" the").tokens == ["Ġthe"]
    assert tokenizer.encode("12").tokens == ["1", "2"]
    assert vocabulary.template == TEMPLATE
    assert vocabulary.bos_id == 1
    assert vocabulary.stop_ids == (2, 0)


@pytest.mark.parametrize("text", AWKWARD_TEXTS)
def test_awkward_texts_come_back(vocabulary: Vocabulary, text: str) -> None:
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer)
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tokenizer.ggml.model", "llama", "tokenizer of the kind 'llama'"),
        ("tokenizer.ggml.pre", "tekken", "the pre-tokenizer 'tekken' is not known"),
        ("tokenizer.ggml.token_type", [1], "token types do not fit"),
        ("tokenizer.ggml.merges", ["ab"], "'ab' is not a merge of two tokens"),
        ("tokenizer.ggml.tokens", None, "tokenizer.ggml.tokens is missing"),
        ("tokenizer.chat_template", None, "has no chat template"),
    ],
)
def test_what_is_not_understood_is_refused(tiny_gguf: Path, key: str, value: Any, said: str) -> None:
    with GgufFile(tiny_gguf) as gguf:
        gguf.fields[key] = value
        with pytest.raises(SourceError, match=said):
            from_gguf(gguf)


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "default", "qwen2", "llama-bpe"])
def test_every_known_pre_tokenizer_is_lossless(tiny_gguf: Path, pre: str) -> None:
    with GgufFile(tiny_gguf) as gguf:
        gguf.fields["tokenizer.ggml.pre"] = pre
        tokenizer = Tokenizer.from_str(from_gguf(gguf).tokenizer)
    text = "It's  2024, naïve \n\n x"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_agreement_with_the_source_is_counted(vocabulary: Vocabulary) -> None:
    answer = answers(vocabulary)
    assert check_tokenizer(vocabulary, lambda texts: answer) == len(AWKWARD_TEXTS)


def test_other_ids_than_the_sources_are_refused(vocabulary: Vocabulary) -> None:
    answer = answers(vocabulary)
    other = replace(answer, ids=((9, *answer.ids[0][1:]), *answer.ids[1:]))
    with pytest.raises(BuildError, match="differs from the source's tokenizer on 'Hello, world!'"):
        check_tokenizer(vocabulary, lambda texts: other)


def test_another_text_than_the_sources_is_refused(vocabulary: Vocabulary) -> None:
    answer = answers(vocabulary)
    other = replace(answer, texts=(answer.texts[0] + " ", *answer.texts[1:]))
    with pytest.raises(BuildError, match="when it decodes"):
        check_tokenizer(vocabulary, lambda texts: other)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("fine\n{% for %}", "the chat template is wrong in line 2: "),
        ("hello", "the chat template loses what the user says"),
        ("{{ messages[7].content }}", r"the chat template fails \(template line 1\): "),
        ("{{ ''.__class__.__mro__ }}", r"the chat template fails \(template line 1\): "),
        ("{{ messages[0].content }}{% if messages[1] %}{{ 1 / 0 }}{% endif %}", r"fails \(template line 1\)"),
        ("\n{{ raise_exception('no chats') }}", r"refuses this conversation: no chats \(template line 2\)"),
    ],
)
def test_a_template_that_does_not_work_is_refused(vocabulary: Vocabulary, template: str, said: str) -> None:
    place = Path("model") / "chat_template.jinja"
    assert checked(vocabulary, place) == vocabulary
    with pytest.raises(SourceError, match=said) as raised:
        checked(replace(vocabulary, template=template), place)
    assert raised.value.message.startswith(f"{place}: ")
    assert raised.value.hint is not None


def exported(folder: Path, vocabulary: Vocabulary, **files: Any) -> Path:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(vocabulary.tokenizer, encoding="utf-8")
    for name, value in files.items():
        path = folder / (f"{name}.jinja" if name == "chat_template" else f"{name}.json")
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return folder


def test_an_exported_folder_gives_the_same(vocabulary: Vocabulary, tmp_path: Path) -> None:
    folder = exported(
        tmp_path / "exported",
        vocabulary,
        chat_template=TEMPLATE,
        generation_config={"eos_token_id": [2, 0], "bos_token_id": 1},
    )
    assert from_folder(folder) == vocabulary


@pytest.mark.parametrize(
    "settings",
    [
        {"chat_template": TEMPLATE, "eos_token": "<|im_end|>", "bos_token": "<|im_start|>"},
        {
            "chat_template": TEMPLATE,
            "eos_token": {"content": "<|im_end|>"},
            "bos_token": {"content": "<|im_start|>"},
        },
        {
            "chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": TEMPLATE}],
            "eos_token": "<|im_end|>",
            "bos_token": "<|im_start|>",
        },
    ],
)
def test_the_settings_of_the_tokenizer_are_understood(
    vocabulary: Vocabulary, tmp_path: Path, settings: dict[str, Any]
) -> None:
    folder = exported(tmp_path / "exported", vocabulary, tokenizer_config=settings)
    assert from_folder(folder) == vocabulary


def test_an_exported_folder_without_template_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    folder = exported(tmp_path / "exported", vocabulary, config={"eos_token_id": 2})
    with pytest.raises(SourceError, match="has no chat template"):
        from_folder(folder)


@pytest.mark.parametrize("text", ["{}", "[", '{"model": 3}'])
def test_a_damaged_tokenizer_is_refused(vocabulary: Vocabulary, tmp_path: Path, text: str) -> None:
    folder = exported(tmp_path / "exported", vocabulary)
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(SourceError, match="is not a tokenizer"):
        from_folder(folder)


def test_a_template_with_marks_for_training_is_taken(vocabulary: Vocabulary) -> None:
    marked = TEMPLATE.replace("{{", "{% generation %}{{").replace("}}", "}}{% endgeneration %}")
    wanted = replace(vocabulary, template=marked)
    assert checked(wanted, Path("model")) == wanted


def test_the_end_of_a_channel_is_not_the_end_of_a_turn(tiny_gguf: Path) -> None:
    with GgufFile(tiny_gguf) as gguf:
        tokens = gguf.fields["tokenizer.ggml.tokens"]
        kinds = gguf.fields["tokenizer.ggml.token_type"]
        assert isinstance(tokens, list)
        assert isinstance(kinds, list)
        tokens += ["<|end|>", "<|return|>"]
        kinds += [3, 3]
        with_channels = from_gguf(gguf).stop_ids
        tokens.pop()
        kinds.pop()
        without = from_gguf(gguf).stop_ids
    assert len(tokens) - 1 in without
    assert with_channels == (2, 0, len(tokens))
