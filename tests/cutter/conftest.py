"""The default model's whole IR, for the few tests that need a real model."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def default_whole_ir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fetched (once, into the cache), converted and repaired as a build does it."""
    from openvino import Core, save_model

    from fleetchat.cutter.convert import convert_gguf
    from fleetchat.cutter.gguf_file import GgufFile
    from fleetchat.cutter.recipe import find_recipe
    from fleetchat.cutter.repair import repair
    from fleetchat.cutter.source import GgufSource, obtain
    from fleetchat.cutter.store import Store
    from fleetchat.paths import store_folder

    source = obtain(find_recipe("smollm2-135m"), None, Store(store_folder()), lambda *_: None)
    assert isinstance(source, GgufSource)
    model = Core().read_model(convert_gguf(source.path, tmp_path_factory.mktemp("converted")))
    with GgufFile(source.path) as gguf:
        repair(model, gguf, lambda done, total: None)
    repaired = tmp_path_factory.mktemp("repaired") / "openvino_model.xml"
    save_model(model, repaired, compress_to_fp16=False)
    return repaired
