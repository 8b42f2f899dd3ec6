"""Which chats stand in tabs, remembered from one run to the next."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetchat.chat.history import ChatId

FILE_NAME = "tabs.toml"
LIMIT = 50  # tabs


@dataclass(frozen=True, slots=True)
class OpenTabs:
    chats: tuple[ChatId, ...] = ()
    active: ChatId | None = None


def read_open_tabs(path: Path) -> OpenTabs:
    """What was written last; nothing when there is no file or it is damaged."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        chats = tuple(ChatId(int(text, 16)) for text in table["chats"][:LIMIT])
        active = ChatId(int(table["active"], 16)) if "active" in table else None
    except (OSError, ValueError, TypeError, KeyError):
        return OpenTabs()
    return OpenTabs(tuple(dict.fromkeys(chats)), active)


def write_open_tabs(path: Path, chats: Sequence[ChatId], active: ChatId | None) -> None:
    """Raises OSError."""
    import tomli_w

    from fleetchat.config.remembered import write_private

    table: dict[str, object] = {"chats": [f"{chat:016x}" for chat in chats]}
    if active is not None:
        table["active"] = f"{active:016x}"
    write_private(path, tomli_w.dumps(table).encode())
