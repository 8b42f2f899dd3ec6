"""`fleetchat chats`: list, search, export, import and remove stored chats."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.errors import InputError

if TYPE_CHECKING:
    from fleetchat.chat.history import ChatSummary, History, Hit, StoredChat


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "chats",
        help="list, search, export, import and remove stored chats",
        description="Work with the chats that are stored on this machine. A chat is named by the id "
        "that `list` shows in front of it, or the beginning of that.",
    )
    actions = parser.add_subparsers(title="commands", dest="action", metavar="COMMAND", required=True)
    _add_list(actions)
    _add_search(actions)
    _add_export(actions)
    _add_import(actions)
    _add_rm(actions)


def _add_list(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("list", help="all chats, the newest first")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.set_defaults(run=run_list)


def _add_search(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("search", help="names of chats and messages that hold a text")
    parser.add_argument("text", metavar="TEXT", help="taken literally; upper and lower case are the same")
    parser.add_argument(
        "--limit", type=int, default=50, metavar="N", help="at most so many names and messages (50)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.set_defaults(run=run_search)


def _add_export(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("export", help="chats as Markdown, or as JSON that `import` reads")
    parser.add_argument("chats", nargs="*", metavar="CHAT", help="which ones; none: all of them")
    parser.add_argument("--json", action="store_true", help="JSON with all branches")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there, not on stdout")
    parser.set_defaults(run=run_export)


def _add_import(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("import", help="chats of an exported JSON file, as new chats")
    parser.add_argument("file", type=Path, metavar="FILE", help="`-` reads stdin")
    parser.set_defaults(run=run_import)


def _add_rm(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("rm", help="remove chats for good")
    parser.add_argument("chats", nargs="+", metavar="CHAT", help="which ones")
    parser.set_defaults(run=run_rm)


def run_list(options: argparse.Namespace) -> int:
    with _history() as history:
        summaries = history.chats()
    if options.json:
        _print_json([_listed(summary) for summary in summaries])
        return 0
    if not summaries:
        print("no chat is stored yet", file=sys.stderr)
    for summary in summaries:
        print(f"{summary.name}  {_day(summary.updated)}  {summary.messages:5,}  {_line(summary.title)}")
    return 0


def run_search(options: argparse.Namespace) -> int:
    with _history() as history:
        hits = history.search(options.text, max(1, options.limit))
    if options.json:
        _print_json([_found(hit) for hit in hits])
        return 0
    if not hits:
        print("nothing was found", file=sys.stderr)
    for hit in hits:
        piece = hit.excerpt
        shown = f"{piece.before}[{piece.hit}]{piece.after}" if piece.hit else piece.text
        where = "name" if hit.role is None else hit.role.value
        print(f"{hit.chat.name}  {_line(hit.chat.title)}\n    {where}: {_line(shown)}")
    return 0


def run_export(options: argparse.Namespace) -> int:
    from fleetchat.chat.export import as_json, as_markdown
    from fleetchat.chat.sanitise import sanitise

    with _history() as history:
        named = _named(history.chats(), options.chats) if options.chats else history.chats()
        chats = [chat for summary in named if (chat := history.chat(summary.id)) is not None]
    text = as_json(chats) if options.json else sanitise("\n".join(map(as_markdown, chats)))
    if options.output is None:
        sys.stdout.write(text)
        return 0
    try:
        options.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{options.output} cannot be written: {error.strerror}") from error
    return 0


def run_import(options: argparse.Namespace) -> int:
    from fleetchat.chat.export import import_chats

    origin = "stdin" if str(options.file) == "-" else str(options.file)
    try:
        text = sys.stdin.read() if origin == "stdin" else options.file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{origin} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{origin} is not UTF-8 text: byte {error.start} is wrong") from error
    chats = import_chats(text, origin)
    with _history() as history:
        for chat in chats:
            _store(history, chat)
    print(f"{len(chats)} imported", file=sys.stderr)
    return 0


def run_rm(options: argparse.Namespace) -> int:
    with _history() as history:
        for summary in _named(history.chats(), options.chats):
            history.remove_chat(summary.id)
    return 0


def _store(history: History, chat: StoredChat) -> None:
    history.add_chat(chat.id, chat.title, chat.created, chat.options)
    for node in chat.tree:
        history.put(chat.id, node)
    history.set_head(chat.id, chat.head)


@contextmanager
def _history() -> Iterator[History]:
    from fleetchat.chat.history import FILE_NAME, open_history
    from fleetchat.paths import state_folder

    history = open_history(state_folder() / FILE_NAME)
    try:
        yield history
    finally:
        history.close()


def _named(summaries: Sequence[ChatSummary], names: Sequence[str]) -> list[ChatSummary]:
    """The chats that were named, in that order. Raises InputError."""
    chosen = []
    for name in names:
        found = [one for one in summaries if name and f"{one.id:016x}".startswith(name.lower())]
        if len(found) != 1:
            problem = "there is no chat" if not found else f"{len(found)} chats begin with"
            raise InputError(f"{problem} {name!r}", hint="`fleetchat chats list` shows them")
        chosen += found
    return chosen


def _listed(summary: ChatSummary) -> dict[str, object]:
    return {
        "chat": f"{summary.id:016x}",
        "title": summary.title,
        "created": summary.created,
        "updated": summary.updated,
        "messages": summary.messages,
    }


def _found(hit: Hit) -> dict[str, object]:
    return {
        "chat": f"{hit.chat.id:016x}",
        "title": hit.chat.title,
        "role": None if hit.role is None else hit.role.value,
        "excerpt": hit.excerpt.text,
        "hit": hit.excerpt.hit,
    }


def _print_json(document: object) -> None:
    from fleetchat.chat.export import json_text

    sys.stdout.write(json_text(document))


def _day(seconds: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _line(text: str) -> str:
    from fleetchat.chat.sanitise import sanitise

    return " ".join(sanitise(text).split())
