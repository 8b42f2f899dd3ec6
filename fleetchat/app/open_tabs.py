"""Which chats stand in tabs, and what was typed there and not sent, remembered from one run to the next."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleetchat.chat.history import ChatId

FILE_NAME = "tabs.toml"
LIMIT = 50  # tabs


@dataclass(frozen=True, slots=True)
class OpenTabs:
    """`drafts` are texts that were not sent; a chat that has one may have no message yet."""

    chats: tuple[ChatId, ...] = ()
    active: ChatId | None = None
    drafts: Mapping[ChatId, str] = field(default_factory=dict)


def read_open_tabs(path: Path) -> OpenTabs:
    """What was written last; nothing when there is no file or it is damaged."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        chats = tuple(ChatId(int(text, 16)) for text in table["chats"][:LIMIT])
        active = ChatId(int(table["active"], 16)) if "active" in table else None
        drafts = {ChatId(int(name, 16)): str(text) for name, text in table.get("drafts", {}).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return OpenTabs()
    return OpenTabs(tuple(dict.fromkeys(chats)), active, drafts)


def write_open_tabs(path: Path, tabs: OpenTabs) -> None:
    """Raises OSError."""
    import tomli_w

    from fleetchat.config.remembered import write_private

    table: dict[str, object] = {"chats": [f"{chat:016x}" for chat in tabs.chats]}
    if tabs.active is not None:
        table["active"] = f"{tabs.active:016x}"
    if tabs.drafts:
        table["drafts"] = {f"{chat:016x}": text for chat, text in tabs.drafts.items()}
    write_private(path, tomli_w.dumps(table).encode("utf-8", "replace"))
