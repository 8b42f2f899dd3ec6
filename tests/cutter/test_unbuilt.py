"""Which recipes have no build, and what one would take."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.cutter import unbuilt as subject
from fleetchat.cutter.unbuilt import Unbuilt, unbuilt_recipes


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    monkeypatch.setattr(subject, "known_recipes", lambda: {one.stem: one for one in folder.glob("*.toml")})
    return folder


def test_what_is_not_built_is_listed_with_what_it_takes(recipes: Path, tmp_path: Path) -> None:
    hub = '[source]\nkind = "hub"\nrepository = "a/b"\n'
    (recipes / "sized.toml").write_text(f"{hub}[sizes]\ndownload = 900\nbuilt = 700\n")
    (recipes / "unknown.toml").write_text(hub)
    (recipes / "broken.toml").write_text("[source]\nkind = 'hub'\n")
    model = tmp_path / "model.gguf"
    model.write_bytes(bytes(1000))
    (recipes / "file.toml").write_text(f"[source]\nkind = 'path'\npath = '{model}'\n")
    (recipes / "gone.toml").write_text(f"[source]\nkind = 'path'\npath = '{tmp_path / 'gone'}'\n")
    broken, file, gone, sized, unknown = unbuilt_recipes([])
    assert broken.fault is not None
    assert "repository" in broken.fault
    assert file == Unbuilt("file", 0, 3500)
    assert gone == Unbuilt("gone", None, None, f"{tmp_path / 'gone'} is not there")
    assert sized == Unbuilt("sized", 900, 700)
    assert unknown == Unbuilt("unknown", None, None)
