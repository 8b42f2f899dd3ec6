"""The channels of harmony (GPT-OSS) as text: what is not the final answer becomes a `<think>` block.

A reply is `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
"""

from __future__ import annotations

from fleetchat.chat.stream_decoder import StreamDecoder
from fleetchat.chat.template import CLOSING, OPENING
from fleetchat.chat.thoughts import CHANNEL, FINAL, MESSAGE
from fleetchat.chat.tokenizer import ChatTokenizer

START = "<|start|>"


class ChannelDecoder:
    """Shows the contents of messages, and neither their roles nor the names of their channels."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._inner: StreamDecoder = tokenizer.decoder()
        self._begin = tokenizer.special_id(MESSAGE)
        self._headers = {tokenizer.special_id(name) for name in (CHANNEL, START)} - {None}
        self._header: str | None = None  # what stands between the marks, None in a content
        self._thinking = False

    def push(self, token_id: int) -> str:
        if token_id in self._headers:
            self._header = ""
        elif token_id == self._begin and self._header is not None:
            return self._began()
        text = self._inner.push(token_id)
        if self._header is None:
            return text
        self._header += text
        return ""

    def finish(self) -> str:
        return self._inner.finish() if self._header is None else ""

    def _began(self) -> str:
        final = self._header is not None and self._header.startswith(FINAL)
        before, self._header, self._thinking = self._thinking, None, not final
        if final:
            return f"\n{CLOSING}\n\n" if before else ""
        return "\n\n" if before else f"{OPENING}\n"


def has_channels(tokenizer: ChatTokenizer) -> bool:
    """Whether a model writes in channels."""
    return None not in (tokenizer.special_id(CHANNEL), tokenizer.special_id(MESSAGE))
