"""Fixtures of the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the user's configuration or writes into the user's state, nor does a child process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("FLEETCHAT_")]:
            if name != "FLEETCHAT_CACHE_DIR":  # downloads and builds may be shared between runs
                patch.delenv(name)
        patch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
        patch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        yield
