"""`fleetchat` without a command."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetchat.cli import chat
from fleetchat.cli.main import build_parser, main
from fleetchat.errors import ConfigError, InputError, RecipeError


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Somebody sits at a terminal, and the user's folders are empty."""
    monkeypatch.setattr(chat, "has_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"FLEETCHAT_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The program's logger, as it was before."""
    logger = logging.getLogger("fleetchat")
    propagate = logger.propagate
    yield logger
    logger.propagate = propagate
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


def test_without_a_terminal_it_says_what_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "error: the chat needs a terminal, and stdin or stdout is none",
        'hint: in pipes and programs use `fleetchat ask "…"`, or `fleetchat --plain` line by line',
    ]


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_without_a_screen_it_says_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(InputError, match="no screen can be drawn on this terminal: TERM=dumb") as raised:
        chat.run(build_parser().read([]))
    assert "fleetchat --plain" in str(raised.value.hint)


@pytest.mark.usefixtures("terminal")
def test_wrong_input_is_told_before_the_screen_opens() -> None:
    parser = build_parser()
    with pytest.raises(RecipeError, match="there is no recipe 'smollm'"):
        chat.run(parser.read(["--recipe", "smollm"]))
    with pytest.raises(ConfigError, match="--stages"):
        chat.run(parser.read(["--stages", "0"]))


@pytest.mark.usefixtures("terminal")
def test_the_user_s_own_themes_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text("name = 1", encoding="utf-8")
    loaded = chat.themes()
    assert {theme.name for theme in loaded.themes} >= {"fleet-dark", "fleet-light"}
    assert loaded.problems == ("mine.toml: the key 'name' is missing",)


@pytest.mark.usefixtures("terminal")
def test_faults_are_logged_to_a_file_and_not_to_the_screen(
    tmp_path: Path, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    chat.log_to_file()
    logger.warning("something broke")
    assert "something broke" in (tmp_path / "state" / "logs" / "chat.log").read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""
