"""A short conversation, rendered as a chat renders it: does the template work, and how does it end a turn?"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from fleetchat.chat.markers import Markers, Part, Span
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.prompt import render
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.thoughts import parted
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.errors import PromptError, SourceError

CHANNEL_END, RETURN = "<|end|>", "<|return|>"
CONVERSATION = (
    Message(Role.USER, "How many legs has a spider?"),
    Message(Role.ASSISTANT, "A spider has eight legs.", (0,)),
    Message(Role.USER, "And a beetle?"),
)


def rehearse(definition: str, source: str, bos_id: int | None, eos_id: int | None) -> int | None:
    """The token that a template writes behind a reply, None for none. `definition` is a tokenizer.json.

    Raises SourceError, with the line, for a template that does not work.
    """
    tokenizer = ChatTokenizer(definition)
    named = {"bos_token": bos_id, "eos_token": eos_id}
    tokens = {name: tokenizer.token(number) or "" for name, number in named.items() if number is not None}
    template = ChatTemplate(source, tokens=tokens)
    try:
        for messages in (CONVERSATION[:1], CONVERSATION):
            _check_kept(template, messages)
            render(tokenizer, template, messages, add_generation_prompt=True)
    except PromptError as error:
        raise SourceError(error.message, hint="use an instruction-tuned model") from error
    return _end_written(definition, tokenizer, template)


def _check_kept(template: ChatTemplate, messages: Sequence[Message]) -> None:
    plain = [{"role": message.role.value, "content": message.content} for message in messages]
    text = template.render(plain, add_generation_prompt=True)
    if any(message.content not in text for message in messages):
        raise SourceError("the chat template loses what the user says")


def _end_written(definition: str, tokenizer: ChatTokenizer, template: ChatTemplate) -> int | None:
    """The added token that stands right behind a reply in a conversation that goes on.

    `<|end|>` is none where `<|return|>` ends a reply: it ends each message of one as well.
    """
    said = [parted(tokenizer, message, template.opening) for message in CONVERSATION]
    markers = Markers(template, said, template.opening)
    pieces = markers.split(template.render(markers.marked(), add_generation_prompt=True))
    behind = pieces[pieces.index(Part(1, False, "")) + 1]
    if not isinstance(behind, Span):
        return None
    added = Tokenizer.from_str(definition).get_added_tokens_decoder()
    names: dict[str, int] = {token.content: number for number, token in added.items()}
    found = max((name for name in names if behind.text.lstrip().startswith(name)), key=len, default=None)
    if found is None or (found == CHANNEL_END and RETURN in names):
        return None
    return names[found]
