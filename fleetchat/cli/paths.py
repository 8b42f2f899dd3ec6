"""`fleetchat paths`: where the configuration, the program's state, the shards and the logs are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "paths",
        help="where the configuration, shards and logs are",
        description="Show the folders that fleetchat uses. FLEETCHAT_CONFIG_DIR, FLEETCHAT_CACHE_DIR "
        "and FLEETCHAT_STATE_DIR move them.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the folders, whether they exist yet or not."""
    folders = used_folders()
    if options.json:
        print(json.dumps({name: str(path) for name, path in folders.items()}, indent=2))
        return 0
    width = max(map(len, folders))
    for name, path in folders.items():
        print(f"{name:<{width}}  {path}")
    return 0


def used_folders() -> dict[str, Path]:
    """Name and place, in the order in which they are shown."""
    from fleetchat import paths

    return {
        "config": paths.config_folder(),
        "state": paths.state_folder(),
        "shards": paths.store_folder(),
        "logs": paths.log_folder(),
        "defaults": paths.shipped("fleet.toml"),
    }
