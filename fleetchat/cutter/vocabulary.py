"""`tokenizer.json`, chat template and stop ids of a model, from a GGUF's fields or an exported folder.

The `tokenizer.json` that transformers writes after loading this kind of GGUF is wrong (each space becomes
token 0), so it is built from the file's own vocabulary and merges, and checked at every build against the
tokenizer that openvino_genai made from the same file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fleetchat.cutter.convert import TokenizerAnswer
from fleetchat.cutter.gguf_file import GgufFile
from fleetchat.errors import BuildError, SourceError

SETTINGS = "tokenizer_config.json"
CONTROL, USER_DEFINED = 3, 4  # token types of GGUF that are matched as a whole
CHANNEL_END, RETURN = "<|end|>", "<|return|>"
END_OF_TURN = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>"),
    *("<end_of_turn>", "<|end_of_turn|>", "<|return|>", "<|eot|>", "</s>"),
)

AWKWARD_TEXTS = (
    *(
        "Hello, world!",
        " leading and trailing ",
        "two  three   four    spaces",
        "tab\tand\nnewline\r\nand\n\n\n",
    ),
    *("1234567890 3.14159 1,000,000 0x7f 2024-02-29", "don't we'll I'M they'VE", "naïve café Ångström ﬁ ½ ²"),
    *(
        "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇫🇷 ☺️ e\u0301",
        "日本語のテキスト、中文字符 한국어 문장",
        "مرحبا بالعالم ١٢٣",
        "नमस्ते दुनिया क्षत्रिय",
    ),
    *(
        "line\u2028separator\u2029paragraph",
        "form\x0cfeed\x0bvertical\x85next",
        "zero\u200bwidth\u00a0no-break\u3000wide",
    ),
    *(
        "<|im_start|>user\nhi<|im_end|>\n",
        "a<|im_end|>b",
        "def f(x):\n    return x**2  # λ → ∞\n",
        "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0001f9ff\U000e0041",
    ),
    *(
        "http://a.b/c?d=e&f=%20#g",
        "MiXeD CaSe ALLCAPS snake_case camelCase",
        "…—–«»“”‘’",
        " ",
        "\n",
        "     \n   x",
    ),
)

ENGLISH = (
    "The lighthouse stood at the end of a long pier. In winter the keeper walked there twice a day, a lamp "
    "in one hand and bread in the other; in summer he took his time, and talked to the gulls on the way.\n"
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a chat needs besides the weights. `tokenizer` is the text of tokenizer.json."""

    tokenizer: str
    template: str
    bos_id: int | None
    stop_ids: tuple[int, ...]


def from_gguf(gguf: GgufFile) -> Vocabulary:
    """Build the vocabulary of a GGUF with a byte-level BPE. Raises SourceError for any other kind."""
    kind = gguf.text("tokenizer.ggml.model")
    if kind != "gpt2":
        raise SourceError(
            f"{gguf.path.name}: tokenizer of the kind {kind!r}; only byte-level BPE ('gpt2') is supported",
            hint="use an exported OpenVINO folder with a tokenizer.json",
        )
    tokens = _texts(gguf, "tokenizer.ggml.tokens")
    specials = _special_tokens(gguf, tokens)
    tokenizer = Tokenizer(models.BPE(vocab=_numbered(tokens), merges=_merges(gguf)))
    _set_pre_tokenizer(tokenizer, gguf)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token in specials if token.special])
    tokenizer.add_tokens([token for token in specials if not token.special])
    bos_id = gguf.integer("tokenizer.ggml.bos_token_id")
    if bos_id is not None and _adds_bos(gguf):
        _put_first(tokenizer, bos_id)
    template = gguf.text("tokenizer.chat_template")
    if not template:
        raise SourceError(f"{gguf.path.name} has no chat template", hint="use an instruction-tuned model")
    return Vocabulary(
        tokenizer=tokenizer.to_str(),
        template=template,
        bos_id=bos_id,
        stop_ids=_stop_ids(
            [gguf.integer(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")],
            {token.content: tokens.index(token.content) for token in specials},
        ),
    )


def from_folder(folder: Path) -> Vocabulary:
    """Take the vocabulary that was exported with an IR. Raises SourceError when a part is missing."""
    text = _read(folder / "tokenizer.json")
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception
        raise SourceError(f"{folder / 'tokenizer.json'} is not a tokenizer: {error}") from error
    settings = {**_json(folder / "special_tokens_map.json"), **_json(folder / SETTINGS)}
    config, generation = _json(folder / "config.json"), _json(folder / "generation_config.json")
    specials = {
        token.content: number
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special
    }
    ends: list[int | None] = [*_ids(generation.get("eos_token_id")), *_ids(config.get("eos_token_id"))]
    eos = _token_text(settings.get("eos_token"))
    if eos is not None:
        ends.insert(0, tokenizer.token_to_id(eos))  # the first is what a template gets as `eos_token`
    bos_id = _bos_id(tokenizer, settings, generation, config)
    if bos_id is not None and isinstance(settings.get("add_bos_token"), bool):
        text = _with_stated_bos(tokenizer, text, bos_id, add=settings["add_bos_token"])
    return Vocabulary(
        tokenizer=text,
        template=_template(folder, settings),
        bos_id=bos_id,
        stop_ids=_stop_ids(ends, specials),
    )


def _bos_id(tokenizer: Any, settings: dict[str, Any], *configs: dict[str, Any]) -> int | None:
    """What templates get as `bos_token`: the tokenizer's own, else the configurations'.

    Some models have an id in config.json and a tokenizer that says it has none (Qwen2.5).
    """
    if "bos_token" in settings:
        bos = _token_text(settings["bos_token"])
        return None if bos is None else cast(int | None, tokenizer.token_to_id(bos))
    return next((one for config in configs for one in _ids(config.get("bos_token_id"))), None)


def _with_stated_bos(tokenizer: Any, text: str, bos_id: int, *, add: bool) -> str:
    """A tokenizer.json that puts BOS before a text as `add_bos_token` says it."""
    adds = tokenizer.encode("a", add_special_tokens=True).ids[:1] == [bos_id]
    if adds == add:
        return text
    if add:
        _put_first(tokenizer, bos_id)
        return cast(str, tokenizer.to_str())
    return json.dumps({**json.loads(text), "post_processor": None}, ensure_ascii=False)


def _put_first(tokenizer: Any, bos_id: int) -> None:
    """Let a tokenizer put BOS before every text."""
    bos = tokenizer.id_to_token(bos_id)
    if bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", "$B"], special_tokens=[(bos, bos_id)]
        )


def _adds_bos(gguf: GgufFile) -> bool:
    """As llama.cpp does it (llama-vocab.cpp): what the file states, else by the pre-tokenizer."""
    stated = gguf.fields.get("tokenizer.ggml.add_bos_token")
    if isinstance(stated, bool):
        return stated
    return gguf.text("tokenizer.ggml.pre") in ("llama-bpe", "llama3")


def text_ids(tokenizer: Path, count: int, vocabulary: int) -> npt.NDArray[np.int64]:
    """The first `count` tokens of plain English, over and over: a model meets such text, not random ids."""
    ids = Tokenizer.from_file(str(tokenizer)).encode(ENGLISH, add_special_tokens=False).ids
    known = [token for token in ids if token < vocabulary] or [0]
    return np.resize(np.array(known, np.int64), count)


def check_tokenizer(vocabulary: Vocabulary, ask: Callable[[tuple[str, ...]], TokenizerAnswer]) -> int:
    """Compare with the source's own tokenizer on awkward texts; returns how many.

    Raises BuildError for the first text that gets other ids, or whose ids give another text.
    """
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer)
    answer = ask(AWKWARD_TEXTS)
    for text, ids, decoded in zip(AWKWARD_TEXTS, answer.ids, answer.texts, strict=True):
        own = tokenizer.encode(text, add_special_tokens=False).ids
        if tuple(own) != ids:
            raise BuildError(
                f"tokenizer.json differs from the source's tokenizer on {text!r}: "
                f"{own} instead of {list(ids)}"
            )
        back = tokenizer.decode(own, skip_special_tokens=False)
        if back != decoded:
            raise BuildError(
                f"tokenizer.json differs from the source's tokenizer when it decodes {own}: "
                f"{back!r} instead of {decoded!r}"
            )
    return len(AWKWARD_TEXTS)


def _set_pre_tokenizer(tokenizer: Any, gguf: GgufFile) -> None:
    """Splitting as `tokenizer.ggml.pre` names it; the names are those of llama.cpp (llama-vocab.cpp)."""
    name = gguf.text("tokenizer.ggml.pre") or "default"
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    plain_byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if name in ("smollm", "starcoder", "refact", "command-r", "codeshell"):
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    elif name in ("gpt-2", "default", "gpt2"):
        tokenizer.pre_tokenizer = byte_level
    elif name in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[name]), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, plain_byte_level])
    else:
        raise SourceError(
            f"{gguf.path.name}: the pre-tokenizer {name!r} is not known",
            hint="use an exported OpenVINO folder with a tokenizer.json",
        )
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()


_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"qwen2": _WORDS % "", "llama-bpe": _WORDS % "{1,3}", "llama3": _WORDS % "{1,3}"}


def _special_tokens(gguf: GgufFile, tokens: list[str]) -> list[AddedToken]:
    kinds = gguf.fields.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise SourceError(f"{gguf.path.name}: its token types do not fit its tokens")
    return [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (CONTROL, USER_DEFINED)
    ]


def _merges(gguf: GgufFile) -> list[tuple[str, str]]:
    merges = []
    for line in _texts(gguf, "tokenizer.ggml.merges"):
        left, space, right = line.partition(" ")
        if not space:
            raise SourceError(f"{gguf.path.name}: {line!r} is not a merge of two tokens")
        merges.append((left, right))
    return merges


def _texts(gguf: GgufFile, key: str) -> list[str]:
    value = gguf.fields.get(key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise SourceError(f"{gguf.path.name}: the field {key} is missing or not a list of texts")
    return cast(list[str], value)


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _stop_ids(stated: list[int | None], specials: dict[str, int]) -> tuple[int, ...]:
    """The ids that the source states first, then the special tokens that are known to end a turn.

    Where `<|return|>` ends a reply (harmony, the format of GPT-OSS), `<|end|>` only ends its thoughts.
    """
    names = [name for name in END_OF_TURN if name != CHANNEL_END or RETURN not in specials]
    known = [specials[name] for name in names if name in specials]
    return tuple(dict.fromkeys(one for one in (*stated, *known) if one is not None))


def template_file(folder: Path) -> Path:
    """Which file of an exported model or a checkpoint has the chat template; it need not exist."""
    names = ("chat_template.jinja", "chat_template.json")
    return next((folder / name for name in names if (folder / name).is_file()), folder / SETTINGS)


def _template(folder: Path, settings: dict[str, Any]) -> str:
    if (folder / "chat_template.jinja").is_file():
        return _read(folder / "chat_template.jinja")
    template = settings.get("chat_template") or _json(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):  # several named ones; the one called default is for chatting
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default")
    if not isinstance(template, str) or not template:
        raise SourceError(f"{folder} has no chat template", hint="use an instruction-tuned model")
    return template


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        parsed = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise SourceError(f"{path} is not a JSON object")
    return parsed


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error


def _ids(value: object) -> list[int]:
    """An id, several, or none."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, int) and not isinstance(one, bool)]


def _token_text(value: object) -> str | None:
    """A token as tokenizer_config.json writes it: its text, or an object with it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
