"""argparse with errors that are one line and name the nearest thing that exists."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from fleetchat.errors import InputError
from fleetchat.spelling import nearest

WANTED: dict[object, str] = {int: "a whole number", float: "a number"}
"""Kinds of values as errors name them; what is configured is told in the same words."""


class Parser(argparse.ArgumentParser):
    """Wrong usage raises InputError. Options are never abbreviated, so that a new one breaks no script."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        raise InputError(message, hint=f"`{self.prog} --help` lists what can be given")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse a whole command line. Raises InputError."""
        namespace, unknown = self.parse_known_args(arguments)
        innermost = self._innermost(arguments)
        if unknown:
            innermost.error(innermost._unknown_text(unknown[0]))
        command = getattr(namespace, "command", None)
        if command is not None and arguments[0] != command:
            # argparse would take such an option and then overwrite it with the command's default
            innermost.error(f"options come after the command: {self.prog} {command} {arguments[0]} …")
        return namespace

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            if action.type not in WANTED:
                raise
            name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
            wanted = WANTED[action.type]
            text = f"command line: {name} must be {wanted}, not {arg_string!r}"
            raise argparse.ArgumentError(None, text) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        known = [str(choice) for choice in choices]
        suggestion = nearest(str(value), known)
        if isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(None, f"there is no command {value!r}{suggestion}")
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(known)}{suggestion}")

    def _innermost(self, arguments: Sequence[str]) -> Parser:
        """The parser of the command, and the command within it, that the words name."""
        commands = self._commands()
        for position, word in enumerate(arguments):
            if word in commands:
                return commands[word]._innermost(arguments[position + 1 :])
        return self

    def _commands(self) -> dict[str, Parser]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    def _unknown_text(self, word: str) -> str:
        option = word.split("=", 1)[0]
        if not option.startswith("-"):
            return f"{word!r} is one word too many (quote a text that has spaces)"
        return f"there is no option {option}{nearest(option, self._option_string_actions)}"
