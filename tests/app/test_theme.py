from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import Theme

from fleetchat.app.app import FleetchatApp
from fleetchat.app.archive import Archive
from fleetchat.app.theme import ThemeProblem, load_themes, parse_theme
from fleetchat.paths import shipped
from tests.app.pilot import screen_text, wait_until
from tests.fakes.runtime import FakeRuntime

GOOD = (
    'name = "mine"\ndark = false\n[colors]\nprimary = "#0a4f94"\nbackground = "white"\n'
    'surface = "#eee"\npanel = "#ddd"\nforeground = "black"\n'
)
TEXT_COLOURS = ("foreground", "primary", "secondary", "accent", "success", "warning", "error")


def shipped_themes() -> tuple[Theme, ...]:
    loaded = load_themes([shipped("themes")])
    assert loaded.problems == ()
    return loaded.themes


def luminance(colour: Color) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: Color, other: Color) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_there_are_dark_light_high_contrast_and_colour_blind_safe_themes() -> None:
    themes = {theme.name: theme.dark for theme in shipped_themes()}
    assert sum(themes.values()) >= 2
    assert len(themes) - sum(themes.values()) >= 2
    assert {"fleet-dark", "fleet-light", "fleet-contrast", "fleet-okabe"} <= set(themes)
    assert len(themes) >= 6


@pytest.mark.parametrize("text", TEXT_COLOURS)
def test_the_high_contrast_theme_has_seven_to_one(text: str) -> None:
    theme = next(theme for theme in shipped_themes() if theme.name == "fleet-contrast")
    for ground in ("background", "surface", "panel"):
        assert contrast(Color.parse(getattr(theme, text)), Color.parse(getattr(theme, ground))) >= 7


@pytest.mark.parametrize("ground", ["background", "surface", "panel"])
@pytest.mark.parametrize("text", TEXT_COLOURS)
def test_shipped_text_can_be_read(text: str, ground: str) -> None:
    for theme in shipped_themes():
        pair = (Color.parse(getattr(theme, text)), Color.parse(getattr(theme, ground)))
        assert contrast(*pair) >= 4.5, f"{theme.name}: {text} on {ground}"


def test_a_theme_is_read() -> None:
    theme = parse_theme(GOOD, "mine.toml")
    assert (theme.name, theme.dark, theme.primary) == ("mine", False, "#0a4f94")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD.replace("#0a4f94", "blu"), "mine.toml: 'colors.primary' = 'blu' is not a colour"),
        (GOOD.replace("panel", "pannel"), "mine.toml: the colour 'colors.panel' is missing"),
        (GOOD + 'gloss = "red"\n', "mine.toml: unknown key 'colors.gloss'"),
        ("nam = 1\n" + GOOD, "mine.toml: unknown key 'nam'"),
        (GOOD.replace('name = "mine"\n', ""), "mine.toml: the key 'name' is missing"),
        (GOOD.replace("false", '"no"'), "mine.toml: 'dark' must be true or false"),
        ("= 1", "mine.toml: not a TOML file"),
        ('name = "x"\ncolors = 1\n', "mine.toml: 'colors' must be a table"),
    ],
)
def test_a_wrong_theme_names_file_and_key(text: str, complaint: str) -> None:
    with pytest.raises(ThemeProblem, match=complaint.replace("(", r"\(")):
        parse_theme(text, "mine.toml")


def test_wrong_files_are_reported_together_and_skipped(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(GOOD.replace("#0a4f94", "blu"), encoding="utf-8")
    (tmp_path / "worse.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "good.toml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no theme", encoding="utf-8")
    loaded = load_themes([tmp_path, tmp_path / "missing"])
    assert [theme.name for theme in loaded.themes] == ["mine"]
    assert len(loaded.problems) == 2


def test_a_theme_that_is_asked_for_by_its_file_is_told_by_its_name(tmp_path: Path) -> None:
    for file, name in (("copy.toml", "fleet-dark"), ("good.toml", "mine"), ("third.toml", "third")):
        (tmp_path / file).write_text(GOOD.replace("mine", name), encoding="utf-8")
    loaded = load_themes([shipped("themes"), tmp_path])
    inside = "themes are called by the name inside the file, and "
    for wanted in ("good", "good.toml"):
        assert loaded.lacks(wanted) == f"there is no theme {wanted!r}: {inside}good.toml has 'mine'"
    every = "copy.toml has 'fleet-dark', good.toml has 'mine'"
    assert loaded.lacks("other") == f"there is no theme 'other': {inside}{every}"
    assert load_themes([shipped("themes")]).lacks("other") == "there is no theme 'other'"


async def theme_notice(folder: Path, wanted: str) -> str:
    """What the chat shows when it is started with a theme that is not there."""
    archive = Archive(folder / "chats.db")
    app = FleetchatApp(FakeRuntime(), archive, load_themes([folder]), wanted, folder)
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await wait_until(pilot, lambda: "there is no theme" in screen_text(pilot))
        shown = " ".join(screen_text(pilot).split())
    assert archive.close(10)
    return shown


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_chat_that_is_started_with_the_name_of_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(GOOD, encoding="utf-8")
    shown = await theme_notice(tmp_path, "good")
    assert "good.toml has" in shown
    assert "'mine'" in shown


def test_a_later_folder_replaces_a_theme(tmp_path: Path) -> None:
    own = GOOD.replace("mine", "fleet-dark")
    (tmp_path / "own.toml").write_text(own, encoding="utf-8")
    loaded = load_themes([shipped("themes"), tmp_path])
    assert next(theme for theme in loaded.themes if theme.name == "fleet-dark").primary == "#0a4f94"
