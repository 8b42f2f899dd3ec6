"""Whether a draft model speaks of the same tokens as the model it drafts for (pure but for reading)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleetchat.errors import InputError


def token_texts(definition: str) -> dict[int, str]:
    """The token of every id, from the text of a `tokenizer.json`. Raises ValueError when it is none."""
    try:
        parsed: dict[str, Any] = json.loads(definition)
        vocabulary = parsed["model"]["vocab"]
        if isinstance(vocabulary, dict):  # BPE, WordPiece, WordLevel
            texts = {int(token_id): str(text) for text, token_id in vocabulary.items()}
        else:  # Unigram: [text, score] in the order of the ids
            texts = {token_id: str(entry[0]) for token_id, entry in enumerate(vocabulary)}
        added = {int(token["id"]): str(token["content"]) for token in parsed.get("added_tokens") or []}
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ValueError(f"no vocabulary: {error}") from error
    return texts | added


def require_same_vocabulary(target: Path, draft: Path, *, target_name: str, draft_name: str) -> None:
    """Every id of the target's `tokenizer.json` must be the same token in the draft's.

    Further ids of the draft are no matter: vocabularies are padded to different sizes. Raises InputError
    that names both models and the first token that differs.
    """
    wanted, offered = _read(target, target_name), _read(draft, draft_name)
    for token_id in sorted(wanted):
        if offered.get(token_id) != wanted[token_id]:
            there = f"{offered[token_id]!a}" if token_id in offered else "missing"
            raise InputError(
                f"the draft model {draft_name} has another vocabulary than {target_name}: "
                f"token {token_id} is {wanted[token_id]!a} in {target_name}, {there} in {draft_name}",
                hint="choose a draft of the same model family, or --drafter ngram",
            )


def _read(path: Path, name: str) -> dict[int, str]:
    try:
        return token_texts(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"the vocabulary of {name} cannot be read: {path}: {error.strerror or error}",
            hint="a draft model's folder needs its tokenizer.json, so that the vocabularies can be compared",
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not the tokenizer.json of {name}: {error}") from error
