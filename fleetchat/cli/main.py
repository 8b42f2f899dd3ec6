"""The command line: which command there is, and what a failure looks like.

Every module of `cli/` is light; a command imports what it needs inside its own function, so that
`--help` and `peer` load neither Textual nor transformers.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Iterator, Sequence

from fleetchat import __version__
from fleetchat.cli import ask, bench, chat, chats, doctor, fleet, paths, peer, replay, shards
from fleetchat.cli.output import configure_streams, log_exception, print_diagnostic, print_error
from fleetchat.cli.parser import Parser
from fleetchat.errors import ExitCode, FleetchatError

COMMANDS = (ask, peer, fleet, shards, doctor, bench, paths, chats, replay)

NO_SPACE = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


def main(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Never lets an exception out but SystemExit."""
    configure_streams()
    try:
        options = build_parser().read(arguments)
        code = options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
        return int(code or ExitCode.DONE)
    except SystemExit:
        raise
    except BaseException as error:
        return explain(error)


def build_parser() -> Parser:
    """The tree of commands. Each module of `cli/` registers its own; without a command it is the chat."""
    parser = Parser(
        prog="fleetchat",
        description="Chat with a language model that is split over several processes or machines. "
        "Without a command the chat opens in the terminal.",
    )
    parser.add_argument("--version", action="version", version=f"fleetchat {__version__}")
    chat.register_options(parser)
    parser.set_defaults(run=chat.run)
    commands: argparse._SubParsersAction[Parser] = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", parser_class=Parser
    )
    for command in COMMANDS:
        command.register(commands)
    return parser


def explain(error: BaseException) -> int:
    """Say on stderr what went wrong, in one line and a hint; returns the exit code."""
    cause = most_telling(error)
    if isinstance(cause, FleetchatError):
        print_error(cause)
        return int(cause.exit_code)
    if isinstance(cause, KeyboardInterrupt):
        return int(ExitCode.INTERRUPTED)
    if isinstance(cause, BrokenPipeError):
        _discard_stdout()
        return int(ExitCode.FAILED)
    if isinstance(cause, OSError) and cause.errno in NO_SPACE:
        print_error(_no_space(cause))
        return int(ExitCode.FAILED)
    _internal(error, cause)
    return int(ExitCode.FAILED)


def most_telling(error: BaseException) -> BaseException:
    """The one exception of a group (trio raises groups) that decides what is said."""
    order = (KeyboardInterrupt, FleetchatError, OSError, BaseException)
    causes = list(_leaves(error))
    return next(cause for kind in order for cause in causes if isinstance(cause, kind))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def _no_space(error: OSError) -> FleetchatError:
    where = f": {error.filename}" if error.filename else ""
    return FleetchatError(
        f"no space is left on the disk{where}",
        hint="free some space; `fleetchat paths` shows which folders are used",
    )


def _internal(error: BaseException, cause: BaseException) -> None:
    log = log_exception(error)
    details = f"; the details are in {log}" if log else "; the log folder cannot be written"
    print_diagnostic(f"error: internal error: {type(cause).__name__}: {cause}{details}")


def _discard_stdout() -> None:
    """The reader of stdout has gone: let the interpreter's last flush write to nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        return
