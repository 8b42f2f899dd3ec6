"""`fleetchat ask`: answers on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetchat.cli.ask_turns import Asked, Entry, plan_conversations
from fleetchat.cli.fleet_options import (
    FLEET_SETTINGS,
    add_model_options,
    add_speculation_options,
    configured_recipe,
)
from fleetchat.errors import InputError

# options of `ask` that set a key of the configuration
SETTINGS = {
    **FLEET_SETTINGS,
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "repetition_penalty": "sampling.repetition_penalty",
    "seed": "sampling.seed",
    "max_tokens": "sampling.max_tokens",
    "stop": "sampling.stop",
    "system": "chat.system",
}


class _Collect(argparse.Action):
    """Keeps prompts and further turns in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if values is None:  # the prompt is not given
            return
        kind = Asked.THEN if option_string == Asked.THEN.value else Asked.PROMPT
        entries: list[Entry] = getattr(namespace, "entries", None) or []
        namespace.entries = [*entries, Entry(kind, str(values))]


def register(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "ask",
        help="one answer on stdout, for pipes and programs",
        description="Ask the model and print its answer on stdout as it is written. Missing shards are "
        "built first. Diagnostics go to stderr.",
    )
    _add_texts(parser)
    add_model_options(parser.add_argument_group("model and fleet"))
    add_speculation_options(parser)
    _add_sampling(parser)
    _add_output(parser)
    parser.set_defaults(run=run)


def _add_texts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to ask")
    group.add_argument(
        "prompt",
        nargs="?",
        action=_Collect,
        metavar="PROMPT",
        help="the prompt; - or none reads it from stdin",
    )
    group.add_argument(
        "--prompt",
        dest="prompt",
        action=_Collect,
        metavar="TEXT",
        help="a prompt with a session of its own (repeatable)",
    )
    group.add_argument(
        "--then",
        dest="prompt",
        action=_Collect,
        metavar="TEXT",
        help="the next turn in the session before it (repeatable)",
    )
    group.add_argument("--system", metavar="TEXT", help="the system prompt")
    group.add_argument("--raw", action="store_true", help="continue the text, without the chat template")


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how the answer is drawn")
    group.add_argument("--temperature", type=float, metavar="T", help="0 always takes the likeliest token")
    group.add_argument(
        "--top-p", type=float, metavar="P", help="draw among the likeliest with this probability"
    )
    group.add_argument("--top-k", type=int, metavar="K", help="draw among the K likeliest; 0: among all")
    group.add_argument("--repetition-penalty", type=float, metavar="R", help="above 1: fewer repetitions")
    group.add_argument("--seed", type=int, metavar="N", help="turn t of a session takes N + t")
    group.add_argument("--max-tokens", type=int, metavar="N", help="the longest answer")
    group.add_argument("--stop", action="append", metavar="TEXT", help="end before this text (repeatable)")
    group.add_argument(
        "--stop-id", action="append", type=int, metavar="N", help="end at this token id (repeatable)"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is printed")
    group.add_argument("--json", action="store_true", help="one JSON document in the end instead of the text")
    group.add_argument("--stats", action="store_true", help="times of stages and answers on stderr")
    group.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="what every stage did when, for chrome://tracing or Perfetto",
    )


def run(options: argparse.Namespace) -> int:
    """Ask; returns the exit code. Raises FleetchatError."""
    from fleetchat.cli.ask_output import progress_on_stderr
    from fleetchat.cli.confirm import terminal_confirmation
    from fleetchat.config import load

    check_options(options)
    overrides = {key: getattr(options, name) for name, key in SETTINGS.items()}
    config = load(options.fleet, overrides, confirm=terminal_confirmation())
    recipe = configured_recipe(config)
    plan = plan_conversations(getattr(options, "entries", None) or [], read_stdin)

    from fleetchat.cli.ask_job import Job, run_job

    return run_job(
        Job(
            config=config,
            recipe=recipe,
            plan=plan,
            stop_ids=frozenset(options.stop_id or ()),
            raw=options.raw,
            as_json=options.json,
            statistics=options.stats,
            trace_file=options.trace,
            progress=progress_on_stderr(),
        )
    )


def check_options(options: argparse.Namespace) -> None:
    """Raise InputError for options that make no sense by themselves or together."""
    if options.raw and options.system is not None:
        raise InputError("--system has no place in --raw: there is no chat template")
    if any(stop_id < 0 for stop_id in options.stop_id or ()):
        raise InputError("--stop-id must be 0 or more")


def read_stdin() -> str:
    """All of stdin. Raises InputError when it is closed or not UTF-8."""
    if sys.stdin is None:
        raise InputError("there is no prompt, and stdin is closed")
    if sys.stdin.isatty():
        from fleetchat.cli.output import print_diagnostic

        end = "Ctrl+Z and Enter" if sys.platform == "win32" else "Ctrl+D"
        print_diagnostic(f"type the prompt; {end} on a line of its own ends it")
        return sys.stdin.read()
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"stdin is not UTF-8 text: byte {error.start} is wrong") from None
