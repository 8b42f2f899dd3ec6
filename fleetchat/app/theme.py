"""Themes are TOML files: read, checked colour by colour, turned into Textual's.

A theme with a wrong colour would be accepted by Textual and fail when it is applied, so every colour is
parsed here, and one wrong file never keeps the program from starting.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

REQUIRED = ("primary", "background", "surface", "panel", "foreground")
OPTIONAL = ("secondary", "accent", "success", "warning", "error", "boost")
DEFAULT_THEME = "fleet-dark"
FALLBACK_THEME = "textual-dark"  # always there: it is part of Textual


class ThemeProblem(Exception):
    """A theme file cannot be used; the text names the file and the key."""


@dataclass(frozen=True, slots=True)
class LoadedThemes:
    """`files` has (file name, the theme's name in it) of each file that was read."""

    themes: tuple[Theme, ...]
    problems: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()

    def lacks(self, wanted: str) -> str:
        """Why there is no theme of that name, when a file has it: what counts is the `name` inside."""
        there = f"there is no theme {wanted!r}"
        own = [(file, name) for file, name in self.files if file.removesuffix(".toml") != name]
        meant = [one for one in own if one[0] in (wanted, f"{wanted}.toml")]
        if not own:
            return there
        listed = ", ".join(f"{file} has {name!r}" for file, name in meant or own)
        return f"{there}: themes are called by the name inside the file, and {listed}"


def parse_theme(text: str, file_name: str) -> Theme:
    """One theme. Raises ThemeProblem."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ThemeProblem(f"{file_name}: not a TOML file: {error}") from error
    unknown = set(table) - {"name", "dark", "colors", "variables"}
    if unknown:
        raise ThemeProblem(f"{file_name}: unknown key {sorted(unknown)[0]!r}")
    name, dark = table.get("name"), table.get("dark", True)
    if not isinstance(name, str) or not name:
        raise ThemeProblem(f"{file_name}: the key 'name' is missing")
    if not isinstance(dark, bool):
        raise ThemeProblem(f"{file_name}: 'dark' must be true or false")
    colors = checked_colors(table.get("colors", {}), file_name)
    variables = {key: str(value) for key, value in table.get("variables", {}).items()}
    return Theme(name=name, dark=dark, variables=variables, **colors)


def checked_colors(table: Any, file_name: str) -> dict[str, Any]:
    """The table `colors`, every value a colour. Raises ThemeProblem."""
    if not isinstance(table, dict):
        raise ThemeProblem(f"{file_name}: 'colors' must be a table")
    for key in REQUIRED:
        if key not in table:
            raise ThemeProblem(f"{file_name}: the colour 'colors.{key}' is missing")
    for key, value in table.items():
        if key not in REQUIRED + OPTIONAL:
            raise ThemeProblem(f"{file_name}: unknown key 'colors.{key}'")
        try:
            Color.parse(str(value))
        except ColorParseError as error:
            raise ThemeProblem(f"{file_name}: 'colors.{key}' = {value!r} is not a colour") from error
    return {key: str(value) for key, value in table.items()}


def load_themes(folders: Iterable[Traversable | Path]) -> LoadedThemes:
    """All themes of all folders; a later folder replaces themes of the same name."""
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    files: list[tuple[str, str]] = []
    for folder in folders:
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if not file.name.endswith(".toml"):
                continue
            try:
                theme = parse_theme(file.read_text(encoding="utf-8"), file.name)
            except (ThemeProblem, OSError, UnicodeDecodeError) as error:
                problems.append(str(error))
            else:
                themes[theme.name] = theme
                files.append((file.name, theme.name))
    return LoadedThemes(tuple(themes.values()), tuple(problems), tuple(files))
