"""Reading a TOML file, with errors that say where."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetchat.errors import ConfigError

SIZE_LIMIT = 1 << 20  # bytes; a configuration is a few KiB, /dev/zero has no end
POSITION = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed file. The hash is of the very bytes that were parsed."""

    path: Path
    document: dict[str, Any]
    sha256: str


def read_toml(path: Path) -> TomlFile:
    """Raises ConfigError naming the file, and the line of a syntax error."""
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {path}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > SIZE_LIMIT:
        raise ConfigError(f"{path} is larger than 1 MiB: not a configuration file")
    return TomlFile(path, _parsed(path, content), hashlib.sha256(content).hexdigest())


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        text = content.decode("utf-8-sig")  # Windows editors write a byte order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: the text is not UTF-8") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}{_syntax_error(text, str(error))}") from error


def _syntax_error(text: str, message: str) -> str:
    """`, line 3: what is wrong`. tomllib before Python 3.14 says the place only in its message."""
    match = POSITION.search(message)
    if match is None:
        return f": {message}"
    line = match[1] or str(len(text.rstrip().splitlines()) or 1)
    return f", line {line}: {POSITION.sub('', message)}"
