"""Fixtures of the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from fleetchat.cutter.manifest import Manifest
    from fleetchat.cutter.store import Store


# The same examples in every run, and no verdict from how long one took: that is a property of the machine.
# New examples: pytest --hypothesis-profile search
STEADY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", STEADY)
settings.register_profile("search", STEADY, derandomize=False)
settings.load_profile("steady")


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the user's configuration or writes into the user's state, nor does a child process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("FLEETCHAT_")]:
            if name != "FLEETCHAT_CACHE_DIR":  # downloads and builds may be shared between runs
                patch.delenv(name)
        patch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
        patch.setenv("FLEETCHAT_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        patch.setenv("FLEETCHAT_FAST_SETTINGS", "default")  # measuring is what its own tests do
        yield


# Read before own_folders() takes the variable away.
TEST_CACHE = os.environ.get("FLEETCHAT_TEST_CACHE")


@pytest.fixture(scope="session")
def default_store() -> Store:
    """The store with the default model, built once per machine and found again by later runs.

    FLEETCHAT_TEST_CACHE names its folder; else it is the user's own store. Tests must not change it.
    """
    from fleetchat.cutter.store import Store
    from fleetchat.paths import store_folder

    return Store(Path(TEST_CACHE).absolute() if TEST_CACHE else store_folder())


@pytest.fixture(scope="session")
def default_build(default_store: Store) -> Manifest:
    """The default model in two stages."""
    from fleetchat.cutter.build import build
    from fleetchat.cutter.recipe import find_recipe

    return build(find_recipe("smollm2-135m"), 2, None, default_store)


@pytest.fixture(scope="session")
def default_whole(default_store: Store, default_build: Manifest) -> Path:
    """Folder of the default model's whole IR with openvino_genai's tokenizer files."""
    folder = default_store.whole(default_build)
    assert folder is not None
    return folder


@pytest.fixture(scope="session")
def default_whole_ir(default_whole: Path) -> Path:
    """The default model's whole IR, converted and repaired."""
    return default_whole / "openvino_model.xml"


@pytest.fixture(scope="session")
def default_gguf(default_store: Store) -> Path:
    """The default model's GGUF."""
    from fleetchat.cutter.recipe import find_recipe
    from fleetchat.cutter.source import GgufSource, obtain

    source = obtain(find_recipe("smollm2-135m"), None, default_store, lambda *_: None)
    assert isinstance(source, GgufSource)
    return source.path


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of a few hundred kilobytes in Q4_1."""
    from tests.cutter.tiny_gguf import write_gguf

    return write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.Q4_1.gguf")


@pytest.fixture(scope="session")
def tiny_store(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Manifest]:
    """A store with the tiny model in two stages. Tests copy it before they change it."""
    from fleetchat.cutter.build import build
    from fleetchat.cutter.store import Store
    from tests.cutter.tiny_gguf import path_recipe

    store = Store(tmp_path_factory.mktemp("tiny-store"))
    return store, build(path_recipe(tiny_gguf), 2, None, store)
