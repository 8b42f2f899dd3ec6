"""The key that chat and peers share."""

from __future__ import annotations

from pathlib import Path

from fleetchat.doctor.finding import Finding, fail, failure_of, ok, warn
from fleetchat.errors import ConfigError
from fleetchat.keys import read_key

NAME = "key"


def check_key(path: Path, *, named: bool, needed: bool) -> tuple[Finding, bytes | None]:
    """The key file, which nothing here creates, and the key where it can be read.

    `named`: the configuration names the file; `needed`: a stage runs on a peer.
    """
    if not path.exists() and not named:
        return _without(path, needed), None
    try:
        key = read_key(path)
    except ConfigError as error:
        found = failure_of(NAME, error, "make the file readable, or name another with [fleet] key_file")
        if needed:
            return found, None
        return warn(NAME, f"{found.text} (only peers need it)", found.remedy), None
    use = "shared with the peers" if needed else "only peers need it: all stages are embedded"
    return ok(NAME, f"{path} ({use})"), key


def _without(path: Path, needed: bool) -> Finding:
    if not needed:
        return ok(NAME, "none needed: embedded stages get a new one at each start")
    return fail(
        NAME,
        f"there is no key file {path}, so the peers cannot know this chat",
        "copy the peers' key file there (mode 600), or name it with key_file under [fleet]",
    )
