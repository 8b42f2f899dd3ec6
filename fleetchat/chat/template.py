"""The model's own chat template, in a sandbox.

Same dialect as transformers (5.5, `utils/chat_template_utils.py`): trimmed blocks, loop controls,
`raise_exception`, `strftime_now`, `{% generation %}`, and a `tojson` that leaves `<` alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from fleetchat.errors import FleetchatError, PromptError, ShardDamaged, SourceError

if TYPE_CHECKING:
    import jinja2

OPENING, CLOSING = "<think>", "</think>"
THOUGHT_KEYS = ("reasoning_content", "thinking")  # of a message, as templates name them

# jinja2 gives this name to the frames of a template that came from a string
_TEMPLATE_FRAME = "<template>"


class ChatTemplate:
    """A compiled template. jinja2 is imported when the first one is made.

    The date that a template may print is taken once, here: a conversation that goes on over midnight
    keeps its prefix, so that its cells stay usable.
    """

    def __init__(
        self, source: str, *, tokens: Mapping[str, str] | None = None, now: datetime | None = None
    ) -> None:
        """`tokens` has the strings that a template may name, as `bos_token`. Raises SourceError."""
        import jinja2

        moment = now or datetime.now()
        self.source = source
        self._tokens = dict(tokens or {})
        try:
            environment = _environment()
            environment.globals["strftime_now"] = moment.strftime
            self._template: jinja2.Template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise SourceError(
                f"the chat template is wrong in line {error.lineno}: {error.message}"
            ) from error

    @classmethod
    def load(cls, path: Path, *, tokens: Mapping[str, str] | None = None) -> ChatTemplate:
        """Read a template file. Raises ShardDamaged when it is missing, SourceError when it is wrong."""
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ShardDamaged(
                f"{path} is not a readable chat template: {error}",
                hint="`fleetchat shards verify` tells which shards are damaged, and how they are built again",
            ) from error
        return cls(source, tokens=tokens)

    @property
    def takes_thoughts(self) -> bool:
        """Whether it knows what `</think>` in a content is: then it decides what becomes of a thought."""
        return CLOSING in self.source

    @cached_property
    def thought_keys(self) -> tuple[str, ...]:
        """The keys of a message in which it looks for a thought."""
        found = re.findall(r"""(?:\.|\[?['"])(\w+)\b""", self.source)
        return tuple(key for key in THOUGHT_KEYS if key in found)

    @cached_property
    def opening(self) -> str:
        """What the generation prompt writes to begin a thought, as `<think>` and a line's end; or nothing."""
        if OPENING not in self.source:
            return ""
        try:
            text = self.render([{"role": "user", "content": "?"}], add_generation_prompt=True)
        except FleetchatError:
            return ""
        place = text.rfind(OPENING)
        return text[place:] if place >= 0 and text[place:].rstrip() == OPENING else ""

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """The conversation as text, `messages` with the keys `role` and `content`.

        Raises PromptError when the template refuses the conversation, SourceError when it fails.
        """
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._tokens,
            )
        except _Refusal as error:
            raise PromptError(
                f"the model's chat template refuses this conversation: {error}{_line_of(error)}"
            ) from error
        except FleetchatError:
            raise
        except Exception as error:  # a template runs arbitrary expressions
            raise SourceError(f"the chat template fails{_line_of(error)}: {error}") from error


class _Refusal(Exception):
    """A template called `raise_exception`."""


def _refuse(message: str) -> NoReturn:
    raise _Refusal(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> jinja2.Environment:
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(Extension):
        """`{% generation %}` marks replies for training; here it is its content."""

        tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    return environment


def _line_of(error: BaseException) -> str:
    """` (template line N)` for an error that passed through a template, else nothing."""
    line = None
    frame: TracebackType | None = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == _TEMPLATE_FRAME:
            line = frame.tb_lineno
        frame = frame.tb_next
    return f" (template line {line})" if line else ""
