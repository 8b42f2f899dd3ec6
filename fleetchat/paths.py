"""Where things live: the user's folders, and what is shipped with the program.

Each folder can be moved by an environment variable. Nothing here creates a folder but `require_writable`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fleetchat.errors import ConfigError, FleetchatError

SHIPPED = ("fleet.toml", "shards", "themes")


def config_folder() -> Path:
    """The user's own files: `fleet.toml`, `fleet.key`. FLEETCHAT_CONFIG_DIR moves it."""
    from platformdirs import user_config_path

    return _moved("FLEETCHAT_CONFIG_DIR") or user_config_path("fleetchat", appauthor=False)


def cache_folder() -> Path:
    """What can be made again: downloads and built shards. FLEETCHAT_CACHE_DIR moves it."""
    from platformdirs import user_cache_path

    return _moved("FLEETCHAT_CACHE_DIR") or user_cache_path("fleetchat", appauthor=False)


def state_folder() -> Path:
    """What the program remembers by itself. FLEETCHAT_STATE_DIR moves it."""
    from platformdirs import user_state_path

    return _moved("FLEETCHAT_STATE_DIR") or user_state_path("fleetchat", appauthor=False)


def log_folder() -> Path:
    """Logs of peers and of internal errors, inside the state folder."""
    return state_folder() / "logs"


def store_folder() -> Path:
    """The shard store, inside the cache folder."""
    return cache_folder() / "shards"


def settings_folder() -> Path:
    """What was measured of this machine: the settings of `fast`."""
    return cache_folder() / "settings"


def shipped(name: str) -> Path:
    """The shipped `fleet.toml`, `shards` or `themes`.

    A wheel carries them inside the package, a checkout (also installed as editable) at its top level.
    Raises FleetchatError when they are in neither place.
    """
    if name not in SHIPPED:
        raise ValueError(f"not shipped: {name}")
    package = Path(__file__).resolve().parent
    for path in (package / "_shipped" / name, package.parent / name):
        if path.exists():
            return path
    raise FleetchatError(
        f"this installation of fleetchat is damaged: {name} is missing",
        hint="install it again: python -m pip install --force-reinstall --no-deps .",
    )


def require_writable(folder: Path) -> None:
    """Make a folder of ours if need be. Raises ConfigError when it cannot be made, or written in."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        raise unwritable(folder, error) from None


def unwritable(path: Path, error: OSError) -> ConfigError:
    """What is said of a file or folder that cannot be written, and which variable moves it, if one does."""
    reason = (error.strerror or str(error)).lower()
    folders = {
        "FLEETCHAT_STATE_DIR": ("state", state_folder()),
        "FLEETCHAT_CACHE_DIR": ("cache", cache_folder()),
        "FLEETCHAT_CONFIG_DIR": ("configuration", config_folder()),
    }
    for variable, (kind, folder) in folders.items():
        if path.is_relative_to(folder):
            named = f"{variable} names it" if _moved(variable) else f"{variable} moves it"
            return ConfigError(
                f"{path} cannot be written: {reason}",
                hint=f"it is in the {kind} folder {folder}: {named}, `fleetchat paths` shows them all",
            )
    return ConfigError(f"{path} cannot be written: {reason}")


def _moved(variable: str) -> Path | None:
    """The absolute folder that an environment variable names, if it is set and not empty."""
    value = os.environ.get(variable)
    return Path(value).expanduser().absolute() if value else None
