"""The converter in its own process: what it makes, and one clear line when it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fleetchat.cutter import convert
from fleetchat.cutter.convert import MADE, ask_tokenizer, convert_gguf, converter_version
from fleetchat.errors import BuildError

pytestmark = pytest.mark.slow


def test_a_gguf_becomes_an_ir_with_tokenizer_files(tiny_gguf: Path, tmp_path: Path) -> None:
    assert convert_gguf(tiny_gguf, tmp_path) == tmp_path / "openvino_model.xml"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(MADE)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    answer = ask_tokenizer(tmp_path, ("<|im_end|>", " the", ""), scratch)
    assert answer.ids[0] == (2,)
    assert answer.texts == ("<|im_end|>", " the", "")


def test_the_version_names_the_converter() -> None:
    assert converter_version().startswith("openvino_genai 20")


def test_a_file_that_the_converter_refuses_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(BuildError) as raised:
        convert_gguf(broken, folder)
    assert raised.value.message.startswith("converting broken.gguf failed: ")
    assert "\n" not in raised.value.message
    assert not (folder / "model.gguf").exists()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.abort()", "failed: openvino_genai crashed (SIGABRT)"),
        ("import sys; sys.exit(7)", "failed: exit code 7"),
        ("import sys; print('one\\n\\ntwo\\n', file=sys.stderr); sys.exit(1)", "failed: two"),
    ],
)
def test_a_crash_is_one_line(
    program: str, said: str, tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "fleetchat"
    (package / "cutter").mkdir(parents=True)
    for folder in (package, package / "cutter"):
        (folder / "__init__.py").touch()
    (package / "cutter" / "genai_process.py").write_text(program)
    monkeypatch.setattr(convert, "child_environment", lambda: {"PYTHONPATH": str(tmp_path)})
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(BuildError) as raised:
        convert_gguf(tiny_gguf, folder)
    assert raised.value.message == f"converting {tiny_gguf.name} {said}"


def test_the_child_ends_with_its_stdin(tiny_gguf: Path, tmp_path: Path) -> None:
    import subprocess

    from fleetchat.child import child_environment

    program = (
        "import threading, fleetchat.cutter.genai_process as child\n"
        "threading.Thread(target=child._end_with_parent, daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "threading.Event().wait()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline().strip() == b"ready"
        process.stdin.close()
        assert process.wait(20) == 1
