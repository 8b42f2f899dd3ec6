"""From messages to the token ids of a prompt (pure).

Replies enter as the ids that were generated, never encoded again, so that the cells which hold them
stay valid. Everything between two replies is encoded as one text, as the model's own tokenizer does
it, but for one thing: the string of a special token in a content stays text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetchat.chat.markers import Markers, Piece, Span, Splice
from fleetchat.chat.messages import Message
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer, SpecialMatch


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A conversation as the model reads it."""

    ids: tuple[int, ...]

    @property
    def reply_start(self) -> int:
        """The logical position of the reply's first token."""
        return len(self.ids)


def render(
    tokenizer: ChatTokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool,
) -> RenderedPrompt:
    """The ids of a conversation.

    Raises PromptError when the template refuses it or leaves a message out, SourceError when the
    template fails or tears a message apart.
    """
    markers = Markers([template.source, *(message.content for message in messages)])
    rendered = template.render(markers.marked(messages), add_generation_prompt=add_generation_prompt)
    return RenderedPrompt(tuple(_encode_pieces(tokenizer, markers.split(rendered, messages))))


def _encode_pieces(tokenizer: ChatTokenizer, pieces: Sequence[Piece]) -> list[int]:
    token_ids: list[int] = []
    run: list[Span] = []
    for piece in pieces:
        if isinstance(piece, Splice):
            token_ids += encode_run(tokenizer, run)
            token_ids += piece.token_ids
            run = []
        else:
            run.append(piece)
    return token_ids + encode_run(tokenizer, run)


def encode_run(tokenizer: ChatTokenizer, run: Sequence[Span]) -> list[int]:
    """Ids of a text whose special tokens are meant in the template's own spans only.

    Without such a string in a content this is the tokenizer's own encoding of the whole text. With
    one, the text between the template's special tokens is encoded apart, as plain text.
    """
    text = "".join(span.text for span in run)
    meant = _matches_in_own_spans(tokenizer, run)
    if tokenizer.special_matches(text) == meant:
        return tokenizer.encode(text, specials=True)
    token_ids: list[int] = []
    position = 0
    for match in meant:
        token_ids += tokenizer.encode(text[position : match.start], specials=False)
        token_ids.append(match.token_id)
        position = match.end
    return token_ids + tokenizer.encode(text[position:], specials=False)


def _matches_in_own_spans(tokenizer: ChatTokenizer, run: Sequence[Span]) -> list[SpecialMatch]:
    """The template's special tokens, by their place in the whole run."""
    matches: list[SpecialMatch] = []
    text = "".join(span.text for span in run)
    offset = 0
    for span in run:
        if span.own:
            matches += tokenizer.special_matches(text, offset, offset + len(span.text))
        offset += len(span.text)
    return matches
