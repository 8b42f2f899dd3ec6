from __future__ import annotations

from pathlib import Path

import pytest

from tests.doctor.set_up import RECIPE, SetUp
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> SetUp:
    """Two stages of the tiny model, built. Tests copy it before they break it."""
    from fleetchat.cutter.build import build
    from fleetchat.cutter.recipe import load

    folder = tmp_path_factory.mktemp("healthy")
    write_tiny_model(folder / "model")
    (folder / "config").mkdir()
    recipe = folder / "config" / "tiny.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    set_up = SetUp(folder).using_own_recipe()
    build(load(recipe), 2, None, set_up.store)
    return set_up


@pytest.fixture
def set_up(healthy: SetUp, tmp_path: Path) -> SetUp:
    """A copy of the healthy set-up."""
    return healthy.copy(tmp_path / "own")


@pytest.fixture
def empty(tmp_path: Path) -> SetUp:
    """Nothing configured, nothing built: the default model would have to be fetched."""
    (tmp_path / "empty").mkdir()
    return SetUp(tmp_path / "empty")
