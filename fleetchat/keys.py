"""The shared key of a fleet: 32 random bytes, kept as one line of hexadecimal digits."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from fleetchat.errors import ConfigError
from fleetchat.paths import unwritable

KEY_BYTES = 32
KEY_FILE_NAME = "fleet.key"  # in the user's configuration folder
_LONGEST_FILE = 1024  # bytes; a key file has 65


class FleetKey(bytes):
    """The shared key, and the certificate with which its links are encrypted (None = they are not)."""

    certificate: Path | None

    def __new__(cls, key: bytes, certificate: Path | None = None) -> FleetKey:
        made = super().__new__(cls, key)
        made.certificate = certificate
        return made


def certificate_of(key: bytes) -> Path | None:
    """The certificate that goes with a key."""
    return key.certificate if isinstance(key, FleetKey) else None


def read_key(path: Path) -> bytes:
    """The key in `path`. Raises ConfigError when it is missing, open to others, or not a key."""
    hint = "copy it from the machine that made it, or run `fleetchat fleet key` to make one"
    return _parse(read_private(path, "key file", longest=_LONGEST_FILE, hint=hint), path)


def read_private(path: Path, what: str, *, longest: int, hint: str) -> bytes:
    """At most `longest` bytes. Raises ConfigError when it is missing (with `hint`) or open to other users."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(longest)
    except FileNotFoundError:
        raise ConfigError(f"there is no {what} {path}", hint=hint) from None
    except OSError as error:
        raise ConfigError(f"the {what} {path} cannot be read: {error.strerror or error}") from None
    check_private(path, mode, what)
    return content


def check_private(path: Path, mode: int, what: str) -> None:
    """Raises ConfigError when other users may read or write it."""
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"the {what} {path} is open to other users", hint=f"run: chmod 600 {path}")


def _parse(content: bytes, path: Path) -> bytes:
    try:
        key = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"the key file {path} does not hold a key: it must be {2 * KEY_BYTES} hexadecimal digits",
            hint="copy the file again from the machine that made it",
        )
    return key


def create_key(path: Path) -> None:
    """Make a key file that is not there yet. Raises ConfigError."""
    if path.exists():
        raise ConfigError(
            f"{path} is there already, and was not changed",
            hint="every machine of the fleet gets a copy of one key file; to begin anew, remove it first",
        )
    create_private(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode("ascii"))


def load_or_create_key(path: Path) -> bytes:
    """The key in `path`, made first when there is none. Two processes that race get the same key."""
    if not path.exists():
        create_private(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode("ascii"))
    return read_key(path)


def create_private(path: Path, content: bytes) -> None:
    """Write a complete file aside, for this user only, then give it its name only if nobody else did.

    Raises ConfigError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _name_if_free(temporary, path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _name_if_free(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    except (OSError, NotImplementedError, AttributeError):  # a file system without hard links
        if not path.exists():
            os.replace(temporary, path)
