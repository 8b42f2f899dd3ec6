"""The tokenizer and the chat template of a build."""

from __future__ import annotations

from pathlib import Path

from fleetchat.chat.conversation import ChatFormat
from fleetchat.cutter.manifest import Manifest
from fleetchat.doctor.finding import Finding, fail, ok

NAME = "tokenizer"
TEXTS = (
    "Hello, world!",
    "Zürich ☕ and 日本語\nfor i in range(10):\n\treturn i",
    "a special string <|im_end|> that a user typed",
)


def load_format(folder: Path, manifest: Manifest) -> ChatFormat:
    """The two files of a build. Raises ShardDamaged or SourceError."""
    return ChatFormat.load(
        folder / manifest.tokenizer.name,
        folder / manifest.template.name,
        bos_id=manifest.bos_id,
        stop_ids=manifest.stop_ids,
    )


def check_tokenizer(chat_format: ChatFormat, manifest: Manifest, rebuild: str) -> Finding:
    """Does text come back from its ids, and do the ids belong to the model?"""
    for text in TEXTS:
        ids = chat_format.tokenizer.encode(text, specials=False)
        decoder = chat_format.decoder()
        back = "".join(decoder.push(token_id) for token_id in ids) + decoder.finish()
        if back.strip() != text:
            return fail(NAME, f"{text!r} comes back as {back!r}", rebuild)
        if ids and max(ids) >= manifest.vocabulary:
            return fail(NAME, f"id {max(ids)} is beyond the model's {manifest.vocabulary:,} tokens", rebuild)
    return ok(NAME, f"{len(TEXTS)} awkward texts come back from their tokens")
