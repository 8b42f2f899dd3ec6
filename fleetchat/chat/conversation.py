"""One conversation with one model: its messages, and the prompt that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetchat.chat.channels import ChannelDecoder, has_channels
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.prompt import render
from fleetchat.chat.stream_decoder import StreamDecoder
from fleetchat.chat.template import ChatTemplate
from fleetchat.chat.tokenizer import ChatTokenizer
from fleetchat.errors import FleetchatError, PromptError


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How a model reads a conversation and writes a reply."""

    tokenizer: ChatTokenizer
    template: ChatTemplate

    @classmethod
    def load(
        cls, tokenizer: Path, template: Path, *, bos_id: int | None, stop_ids: Sequence[int]
    ) -> ChatFormat:
        """Read the two files of a build. Raises ShardDamaged or SourceError."""
        loaded = ChatTokenizer.load(tokenizer)
        named = {"bos_token": bos_id, "eos_token": stop_ids[0] if stop_ids else None}
        tokens = {name: loaded.token(number) or "" for name, number in named.items() if number is not None}
        return cls(loaded, ChatTemplate.load(template, tokens=tokens))

    def decoder(self) -> StreamDecoder:
        """A decoder for one reply."""
        return ChannelDecoder(self.tokenizer) if has_channels(self.tokenizer) else self.tokenizer.decoder()


class Conversation:
    """Messages that grow turn by turn."""

    def __init__(self, chat_format: ChatFormat, *, context: int, system: str | None = None) -> None:
        """`context` is the number of positions that the fleet holds for this conversation."""
        self._format = chat_format
        self._context = context
        self._messages = [Message(Role.SYSTEM, system)] if system else []

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    def ask(self, prompt: str) -> tuple[int, ...]:
        """Add what the user typed; the whole conversation as token ids.

        Raises PromptError when the prompt is empty, refused by the template or too long for the
        context; then nothing was added.
        """
        check_not_empty(prompt)
        self._messages.append(Message(Role.USER, prompt))
        try:
            return self._render()
        except FleetchatError:
            self._messages.pop()
            raise

    def answered(self, text: str, token_ids: tuple[int, ...]) -> None:
        """Add the reply to the last `ask`: its text for people, its ids for the next prompt."""
        self._messages.append(Message(Role.ASSISTANT, text, token_ids))

    def withdraw(self) -> None:
        """Take the last `ask` back: nothing came of it."""
        self._messages.pop()

    def _render(self) -> tuple[int, ...]:
        prompt = render(
            self._format.tokenizer, self._format.template, self._messages, add_generation_prompt=True
        )
        check_room(prompt.ids, self._context)
        return prompt.ids


class PlainText:
    """A text that the model continues, without a chat template. Special tokens can be written out."""

    def __init__(self, chat_format: ChatFormat, *, context: int) -> None:
        self._tokenizer = chat_format.tokenizer
        self._context = context
        self._ids: tuple[int, ...] = ()

    def ask(self, prompt: str) -> tuple[int, ...]:
        """Append `prompt`; the whole text as token ids. Raises PromptError, and then nothing was added."""
        check_not_empty(prompt)
        token_ids = self._tokenizer.begun([*self._ids, *self._tokenizer.encode(prompt, specials=True)])
        check_room(token_ids, self._context)
        self._ids = token_ids
        return token_ids

    def answered(self, text: str, token_ids: tuple[int, ...]) -> None:
        """Append what the model wrote."""
        self._ids += token_ids


def check_not_empty(prompt: str) -> None:
    """Raise PromptError for a prompt with nothing in it."""
    if not prompt.strip():
        raise PromptError("the prompt is empty")


def check_room(prompt_ids: Sequence[int], context: int) -> None:
    """Raise PromptError when a prompt leaves no room for a single token of the reply."""
    if len(prompt_ids) > context - 1:
        raise PromptError(
            f"the prompt has {len(prompt_ids):,} tokens, but a prompt may have at most {context - 1:,}: "
            f"the context holds {context:,} tokens, the reply included",
            hint="shorten the prompt, or raise the context: --context N, or context under [model]",
        )
