"""What is said when a checkpoint cannot be exported here."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.cutter import export as subject
from fleetchat.cutter.export import check_exporter, export
from fleetchat.cutter.export_process import Refused, check_gate
from fleetchat.errors import BuildError, SourceError


def test_without_torch_the_line_for_machines_without_graphics_card_is_said() -> None:
    with pytest.raises(SourceError, match="torch is not installed") as raised:
        check_exporter(lambda name: name != "torch")
    torch_line = "python -m pip install -i https://download.pytorch.org/whl/cpu torch torchvision"
    assert raised.value.hint is not None
    assert raised.value.hint.startswith(
        f"without a graphics card: {torch_line} && python -m pip install '.[export]'"
    )
    with pytest.raises(SourceError, match="and optimum is not installed"):
        check_exporter(lambda name: name != "optimum")
    check_exporter(lambda name: True)


@pytest.mark.parametrize(
    ("name", "oldest", "newest", "installed", "said", "remedy"),
    [
        (
            "gemma3_text",
            "4.50",
            "5.0",
            "5.5.4",
            "gemma3_text models with transformers up to 5.0, and 5.5.4",
            "<=5.0",
        ),
        ("exaone4", None, "4.57.6", "5.5.4", "exaone4 models with transformers up to 4.57.6", "<=4.57.6"),
        ("new", "5.6", None, "5.5.4", "new models with transformers from 5.6 on", ">=5.6"),
    ],
)
def test_a_gate_is_explained_with_the_remedy(
    name: str, oldest: str | None, newest: str | None, installed: str, said: str, remedy: str
) -> None:
    with pytest.raises(Refused) as raised:
        check_gate(name, oldest, newest, installed, "2.2.0")
    assert said in raised.value.error
    assert raised.value.hint.startswith(f"python -m pip install 'transformers{remedy}'")


@pytest.mark.parametrize(
    ("newest", "installed"), [("5.0", "5.0.0"), ("5.2.99", "5.2.4"), (None, "9.0"), ("5.0", "4.57")]
)
def test_an_open_gate_is_passed(newest: str | None, installed: str) -> None:
    check_gate("some", None, newest, installed, "2.2.0")


@pytest.mark.slow
def test_a_child_that_fails_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without optimum the child fails at once; its last line is the reason."""
    folder = tmp_path / "model"
    folder.mkdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(
        subject, "child_environment", lambda: {**subject.os.environ, "PYTHONPATH": hiding(tmp_path)}
    )
    with pytest.raises(BuildError) as raised:
        export(folder, "int4", scratch, lambda *_: None)
    assert raised.value.message == f"the export of {folder} failed: ImportError: no optimum here"


def hiding(folder: Path) -> str:
    """A module path on which optimum cannot be imported."""
    package = folder / "modules" / "optimum"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no optimum here')\n")
    root = Path(__file__).parents[2]
    return f"{package.parent}{subject.os.pathsep}{root}"
