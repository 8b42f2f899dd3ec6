"""An exported model that is not whole is refused before OpenVINO reads it."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from fleetchat.cutter import ir_file as subject
from fleetchat.cutter.files import failed_write
from fleetchat.cutter.ir_file import check_ir, save_ir
from fleetchat.errors import SourceError
from tests.cutter.fixture_models import CORE, whole_ir


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    xml = whole_ir("llama3")
    for file in (xml, xml.with_suffix(".bin")):
        shutil.copyfile(file, tmp_path / file.name)
    return tmp_path / xml.name


def test_a_whole_model_is_taken(copied: Path) -> None:
    check_ir(copied)


@pytest.mark.parametrize("missing", [1, 70_000])
def test_weights_that_are_cut_off_are_named_with_both_sizes(copied: Path, missing: int) -> None:
    weights = copied.with_suffix(".bin")
    content = weights.read_bytes()
    weights.write_bytes(content[:-missing])
    with pytest.raises(SourceError) as raised:
        check_ir(copied)
    assert raised.value.message == (
        f"{weights} is cut off: the weights need {len(content)} bytes, the file has {len(content) - missing}"
    )
    assert raised.value.hint == "export the model again, or copy the file again"


def test_a_graph_that_is_cut_off_is_named(copied: Path) -> None:
    copied.write_bytes(copied.read_bytes()[:90_000])
    with pytest.raises(SourceError, match=r"openvino_model\.xml is cut off: .* \(file of 90000 bytes\)"):
        check_ir(copied)


def test_a_save_that_fails_says_what_the_disk_says(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CORE.read_model(copied)
    wanted: list[int] = []

    def full(folder: Path, size: int) -> OSError:
        wanted.append(size)
        return OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "stage.xml"
    target.mkdir()  # no file can be written there
    monkeypatch.setattr(subject, "failed_write", full)
    with pytest.raises(OSError, match="No space left on device"):
        save_ir(model, target)
    assert wanted[0] > 100_000
    monkeypatch.setattr(subject, "failed_write", lambda folder, size: None)
    with pytest.raises(RuntimeError):
        save_ir(model, target)


def test_what_is_saved_is_whole(copied: Path, tmp_path: Path) -> None:
    save_ir(CORE.read_model(copied), tmp_path / "saved.xml")
    check_ir(tmp_path / "saved.xml")
    saved, source = (CORE.read_model(xml) for xml in (tmp_path / "saved.xml", copied))
    assert len(saved.get_ops()) == len(source.get_ops())


def test_a_probe_leaves_nothing(tmp_path: Path) -> None:
    assert failed_write(tmp_path, 3_000_000) is None
    assert list(tmp_path.iterdir()) == []
    found = failed_write(tmp_path / "none", 1)
    assert found is not None
    assert found.errno == errno.ENOENT
