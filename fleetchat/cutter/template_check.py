"""A chat template, rendered once at build as the chat renders it: so that a broken one is found then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fleetchat.chat.rehearsal import rehearse
from fleetchat.cutter.vocabulary import Vocabulary, from_folder, template_file
from fleetchat.errors import SourceError

MEND = "mend that line, or take an instruction-tuned model whose template works"


def checked(vocabulary: Vocabulary, place: Path) -> Vocabulary:
    """The vocabulary with the end of turn that its template writes; `place` is where the template is from.

    Raises SourceError with the place, the line and what to do when the template does not work.
    """
    eos = next(iter(vocabulary.stop_ids), None)
    try:
        end = rehearse(vocabulary.tokenizer, vocabulary.template, vocabulary.bos_id, eos)
    except SourceError as error:
        raise SourceError(f"{place}: {error.message}", hint=error.hint or MEND) from error
    more = () if end is None or end in vocabulary.stop_ids else (end,)
    return replace(vocabulary, stop_ids=(*vocabulary.stop_ids, *more))


def checked_folder(folder: Path) -> Vocabulary:
    """The vocabulary of an exported model or a checkpoint, checked. Raises SourceError."""
    return checked(from_folder(folder), template_file(folder))
