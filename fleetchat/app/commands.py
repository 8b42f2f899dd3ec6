"""Every command once: its name, words, keys and slash name. Palette, footer, help and keys come from here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """`keys` are Textual's names, comma separated. `argument` says what may follow the slash name."""

    id: str
    group: str
    title: str
    help: str
    keys: str = ""
    slash: str = ""
    argument: str = ""
    footer: bool = False


def tab_by_place(place: int) -> Command:
    return Command(
        f"tab.{place}", "Tabs", f"Chat {place}", f"Show the {place}. chat", keys=f"alt+{place}", slash=""
    )


COMMANDS: tuple[Command, ...] = (
    Command(
        "chat.stop", "Messages", "Stop", "Stop the reply and keep its text", "escape", "stop", footer=True
    ),
    Command("tab.new", "Tabs", "New chat", "Begin an empty chat in a new tab", "ctrl+n", "new", footer=True),
    Command("tab.close", "Tabs", "Close", "Close this tab; the chat is kept", "f8,alt+w", "close"),
    Command("tab.reopen", "Tabs", "Reopen", "Open the tab that was closed last", "alt+t", "reopen"),
    Command("tab.rename", "Tabs", "Rename", "Give this chat a name", "f2", "rename", "NAME"),
    Command("tab.next", "Tabs", "Next chat", "Show the next tab", "ctrl+pagedown,alt+right", "next"),
    Command(
        "tab.previous", "Tabs", "Previous chat", "Show the previous tab", "ctrl+pageup,alt+left", "previous"
    ),
    Command("tab.right", "Tabs", "Move right", "Move this tab to the right", "alt+shift+right", "right"),
    Command("tab.left", "Tabs", "Move left", "Move this tab to the left", "alt+shift+left", "left"),
    Command("tab.show", "Tabs", "Chat by number", "Show the tab with a number", "", "tab", "NUMBER"),
    *(tab_by_place(place) for place in range(1, 10)),
    Command("view.follow", "View", "Newest text", "Go to the newest text and stay there", "end", "end"),
)

BY_ID = {command.id: command for command in COMMANDS}
