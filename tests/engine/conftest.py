"""What the tests of both engines use."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For stages of the tiny model, written once a module."""
    return tmp_path_factory.mktemp("tiny")
