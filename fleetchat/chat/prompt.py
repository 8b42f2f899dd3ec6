"""From messages to the token ids of a prompt (pure).

Replies enter as the ids that were generated, never encoded again, so that the cells which hold them
stay valid; of a thought stays what the template leaves. Everything between two replies is encoded as one
text, as the model's own tokenizer does it, but for one thing: the string of a special token in a content
stays text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetchat.chat.markers import Markers, Part, Piece, Span
from fleetchat.chat.messages import Message
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.thoughts import Said, parted
from fleetchat.chat.tokenizer import ChatTokenizer, SpecialMatch


@dataclass(frozen=True, slots=True)
class Splice:
    """Ids that enter the prompt as they are."""

    token_ids: tuple[int, ...]


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
    """The ids of a conversation; what the tokenizer puts before every text (BOS) is there once.

    Raises PromptError when the template refuses it or leaves a message out, SourceError when the
    template fails or tears a message apart.
    """
    said = [parted(tokenizer, message, template.opening) for message in messages]
    pieces = _pieces(tokenizer, template, said, add_generation_prompt=add_generation_prompt)
    return RenderedPrompt(tokenizer.begun(_encode_pieces(tokenizer, _resolved(pieces, said))))


def _pieces(
    tokenizer: ChatTokenizer, template: ChatTemplate, said: Sequence[Said], *, add_generation_prompt: bool
) -> list[Piece]:
    """What the template writes, told apart by marks, where these do not change what it writes.

    A template that looks at the end of a content, as one that trims what is left of a system text, sees a
    mark there. Then contents without the string of a special token need none.
    """
    markers = Markers(template, said, template.opening)

    def written(*, typed: bool) -> list[Piece]:
        messages = markers.marked(typed=typed)
        return markers.split(template.render(messages, add_generation_prompt=add_generation_prompt))

    marked = written(typed=True)
    markers.check_complete(marked)
    if any(tokenizer.special_matches(one.answer) for one in said if one.answer_ids is None):
        return marked
    plain = written(typed=False)
    return marked if _text(marked) == _text(plain) else plain


def _text(pieces: Sequence[Piece]) -> str:
    """The text without marks."""
    return "".join(piece.text for piece in pieces)


def _resolved(pieces: Sequence[Piece], said: Sequence[Said]) -> list[Span | Splice]:
    """Generated ids for the parts of replies, all of a reply's where the template left it as it was."""
    resolved: list[Span | Splice] = []
    place = 0
    while place < len(pieces):
        piece = pieces[place]
        if isinstance(piece, Span):
            resolved.append(piece)
        elif piece.of_thought and _is_whole(pieces[place - 1 : place + 3], said[piece.number]):
            one = said[piece.number]
            resolved[-1] = Span(_without_head(resolved[-1], one), own=True)
            resolved.append(Splice(one.ids or ()))
            place += 2
        else:
            resolved.append(_of_part(piece, said[piece.number]))
        place += 1
    return resolved


def _of_part(part: Part, one: Said) -> Span | Splice:
    if part.of_thought or one.answer_ids is None:
        return Span(part.text, own=False)
    return Splice(one.answer_ids)


def _is_whole(around: Sequence[Piece], one: Said) -> bool:
    """Whether the pieces before, of and behind a thought are what the reply itself was."""
    match around:
        case [Span() as before, Part() as thought, Span() as bridge, Part(of_thought=False)]:
            lead, core, trail = _stripped(one.thought or "")
            same = thought.text == core and bridge.text == trail + one.bridge
            return one.ids is not None and bool(one.bridge) and same and before.text.endswith(one.head + lead)
    return False


def _without_head(before: Span | Splice, one: Said) -> str:
    """The template's own text before a reply, without what the reply began with."""
    assert isinstance(before, Span)
    lead, _, _ = _stripped(one.thought or "")
    return before.text.removesuffix(one.head + lead)


def _stripped(text: str) -> tuple[str, str, str]:
    """White space, text and white space; all of it before where there is no text."""
    core = text.strip()
    before, after = text.split(core, 1) if core else (text, "")
    return before, core, after


def _encode_pieces(tokenizer: ChatTokenizer, pieces: Sequence[Span | Splice]) -> list[int]:
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
