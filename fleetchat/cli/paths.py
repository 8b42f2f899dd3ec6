"""`fleetchat paths`: where the configuration, the program's state, the shards and the logs are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fleetchat.errors import InputError


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "paths",
        help="where the configuration, shards and logs are",
        description="Show the folders that fleetchat uses. FLEETCHAT_CONFIG_DIR, FLEETCHAT_CACHE_DIR "
        "and FLEETCHAT_STATE_DIR move them.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--logs", action="store_true", help="list the log files instead, the newest first")
    parser.add_argument(
        "--tail", type=int, metavar="N", help="with --logs: print the last N lines of each file too"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the folders, whether they exist yet or not; or the log files."""
    if options.tail is not None and (not options.logs or options.tail < 1):
        raise InputError("--tail N prints lines of logs: it goes with --logs, and N is at least 1")
    if options.logs:
        return print_logs(options.tail or 0, as_json=options.json)
    folders = used_folders()
    if options.json:
        print(json.dumps({name: str(path) for name, path in folders.items()}, indent=2))
        return 0
    width = max(map(len, folders))
    for name, path in folders.items():
        print(f"{name:<{width}}  {path}")
    return 0


def print_logs(tail: int, *, as_json: bool) -> int:
    """Size, age and path of each log file, with its last `tail` lines."""
    from fleetchat.chat.sanitise import sanitise
    from fleetchat.cli.output import print_diagnostic
    from fleetchat.doctor.logs import age_text, last_lines, log_files, size_text
    from fleetchat.paths import log_folder

    files = log_files(log_folder())
    if as_json:
        entries = [
            {
                "path": str(file.path),
                "bytes": file.size,
                "age_s": round(file.age, 1),
                **({"tail": last_lines(file.path, tail)} if tail else {}),
            }
            for file in files
        ]
        print(json.dumps(entries, indent=2, ensure_ascii=False))
        return 0
    if not files:
        print_diagnostic(f"there are no logs yet in {log_folder()}")
    for file in files:
        print(f"{size_text(file.size):>9}  {age_text(file.age):>7} ago  {file.path}")
        for line in last_lines(file.path, tail):
            print(f"    {sanitise(line)}")
    return 0


def used_folders() -> dict[str, Path]:
    """Name and place, in the order in which they are shown."""
    from fleetchat import paths

    return {
        "config": paths.config_folder(),
        "state": paths.state_folder(),
        "chats": paths.state_folder() / "chats.db",
        "shards": paths.store_folder(),
        "logs": paths.log_folder(),
        "defaults": paths.shipped("fleet.toml"),
    }
