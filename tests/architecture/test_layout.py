"""What stands at the top level, and what must not stand in any file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.checkout import CHECKOUT, tracked_files

TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "fleet.toml",
    "fleetchat",
    "pyproject.toml",
    "shards",
    "tests",
    "themes",
}
MACHINE_PATH = re.compile(r"(?<![\w.<~*-])/(?:work|root|home/\w+|tmp/(?:fc|v))(?:/|\b)")
PACKAGE_HOST = re.compile(r"python" + r"hosted\.org|pypi" + r"\.org|index" + r"-url|trusted" + r"-host")


def tracked_texts() -> list[tuple[Path, str]]:
    texts = []
    for name in tracked_files():
        try:
            texts.append((name, (CHECKOUT / name).read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # weights of a fixture
    return texts


def found(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_the_top_level_has_only_known_names() -> None:
    assert {name.parts[0] for name in tracked_files()} == TOP_LEVEL


def test_no_file_names_a_path_of_one_machine() -> None:
    assert found(MACHINE_PATH) == []


def test_no_file_names_a_package_host() -> None:
    assert found(PACKAGE_HOST) == []


@pytest.mark.parametrize(
    "text", ["cd /" + "work/main", "'/" + "root/.cache'", "/" + "home/me", "x /" + "tmp/v/dev"]
)
def test_a_path_of_one_machine_is_seen(text: str) -> None:
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize("text", ["fleetchat/work/x", "~/work", "the homework", "the network/root"])
def test_other_words_are_not_taken_for_one(text: str) -> None:
    assert not MACHINE_PATH.search(text)


def test_no_source_file_is_long() -> None:
    limit = 400  # lines; the aim is 200
    sources = [(name, text) for name, text in tracked_texts() if name.parts[0] == "fleetchat"]
    assert [str(name) for name, text in sources if name.suffix == ".py" and text.count("\n") > limit] == []
