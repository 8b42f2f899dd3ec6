"""Settings that the program remembers by itself, in its own file; the user's file is never written."""

from __future__ import annotations

from fleetchat.config.files import read_toml
from fleetchat.config.load import STATE_FILE_NAME
from fleetchat.config.remembered import write_private
from fleetchat.errors import ConfigError
from fleetchat.paths import state_folder


def remember_setting(table: str, key: str, value: object) -> None:
    """Keep one value; the others stay. A damaged file begins anew. Raises OSError."""
    import tomli_w

    path = state_folder() / STATE_FILE_NAME
    try:
        document = read_toml(path).document
    except ConfigError:
        document = {}
    kept = document.get(table)
    document[table] = {**(kept if isinstance(kept, dict) else {}), key: value}
    write_private(path, tomli_w.dumps(document).encode())
