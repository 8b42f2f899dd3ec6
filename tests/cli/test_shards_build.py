"""`fleetchat shards build` with a model that no recipe names yet."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleetchat.child import child_environment
from fleetchat.cli.main import main
from fleetchat.cutter import source as source_module
from fleetchat.cutter import whole as whole_module
from fleetchat.cutter.recipe import PathSource, find_recipe
from fleetchat.cutter.store import Store
from tests.cutter.test_checkpoint import write_checkpoint
from tests.tiny_model import write_tiny_model

Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path / "config"))


def run(tmp_path: Path, *arguments: str) -> int:
    return main(["shards", "build", *arguments, "--store", str(tmp_path / "store")])


def half_built(tmp_path: Path) -> list[Path]:
    return list(Store(tmp_path / "store").temporary_folder.glob("*"))


@pytest.mark.slow
def test_a_folder_becomes_a_recipe(tmp_path: Path, capsys: Printed) -> None:
    folder = tmp_path / "My Model"
    write_tiny_model(folder)
    assert run(tmp_path, str(folder), "--yes") == 0
    printed = capsys.readouterr()
    assert "  my-model  2 stages  " in printed.out
    first, *_, written, use = printed.err.splitlines()
    assert first.startswith(f"My Model, from {folder}: ")
    assert written == f"recipe written to {tmp_path / 'config' / 'shards' / 'my-model.toml'}"
    assert use == 'chat with it: fleetchat ask --recipe my-model "…", or recipe = "my-model" in [model]'
    assert find_recipe("my-model").source == PathSource(folder)
    assert run(tmp_path, "my-model") == 0
    assert capsys.readouterr().err == "checking the stored shards\n"


def test_nobody_is_asked_without_a_terminal(tmp_path: Path, tiny_gguf: Path, capsys: Printed) -> None:
    assert run(tmp_path, str(tiny_gguf)) == 2
    assert capsys.readouterr().err.endswith(
        "error: nobody can be asked whether to build this\nhint: add --yes\n"
    )
    assert not (tmp_path / "store" / "builds").exists()


@pytest.mark.parametrize("kind", ["junk.gguf", "empty folder"])
def test_what_is_no_model_is_refused_before_it_is_said_what_it_takes(
    tmp_path: Path, capsys: Printed, kind: str
) -> None:
    path = tmp_path / kind
    if path.suffix:
        path.write_bytes(b"junk" * 100)
    else:
        path.mkdir()
    assert run(tmp_path, str(path)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {path} ")
    assert "MB of disk" not in printed.err


def test_a_name_that_is_taken_is_refused(tmp_path: Path, tiny_gguf: Path, capsys: Printed) -> None:
    assert run(tmp_path, str(tiny_gguf), "--yes", "--name", "smollm2-135m") == 2
    assert "error: another model has the recipe smollm2-135m already" in capsys.readouterr().err


def test_too_little_memory_is_refused_beforehand(
    tmp_path: Path, tiny_gguf: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetchat.engine.memory.available_memory", lambda: 10**6)
    assert run(tmp_path, str(tiny_gguf), "--yes") == 2
    assert "of memory, and 1 MB are free\nhint: close other programs" in capsys.readouterr().err
    assert not (tmp_path / "store" / "builds").exists()


@pytest.mark.parametrize("damage", ["half", "architecture", "template"])
def test_a_gguf_that_cannot_be_used_is_one_line_and_leaves_nothing(
    tmp_path: Path, tiny_gguf: Path, capsys: Printed, damage: str
) -> None:
    path = tmp_path / "damaged.gguf"
    content = tiny_gguf.read_bytes()
    said = "is cut off: its tensors need"
    if damage == "half":
        content = content[: len(content) // 2]
    elif damage == "architecture":
        content = content.replace(
            b"\x05\x00\x00\x00\x00\x00\x00\x00llama", b"\x05\x00\x00\x00\x00\x00\x00\x00mamba", 1
        )
        said = "models of the architecture 'mamba' cannot be read from a GGUF"
    else:
        content = content.replace(b"{% endfor %}", b"{% endfur %}", 1)
        said = "the chat template is wrong in line 3: "
    path.write_bytes(content)
    assert run(tmp_path, str(path), "--yes") == 2
    error = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    assert said in error
    assert half_built(tmp_path) == []
    assert Store(tmp_path / "store").builds() == []
    assert not (tmp_path / "config" / "shards").exists()


@pytest.mark.slow
def test_a_checkpoint_is_exported_once_and_built(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export itself is replaced: it needs torch. Everything around it is real."""
    exports: list[str] = []

    def exported(checkpoint: Path, weights: str, scratch: Path, _: object) -> None:
        exports.append(weights)
        write_tiny_model(scratch / "ir")

    monkeypatch.setattr(source_module, "export", exported)
    monkeypatch.setattr(source_module, "check_exporter", lambda: None)
    monkeypatch.setattr("fleetchat.cutter.export.check_exporter", lambda: None)
    folder = write_checkpoint(tmp_path / "checkpoint")
    assert run(tmp_path, str(folder), "--yes", "--weights", "int8") == 0
    assert run(tmp_path, "checkpoint") == 0
    assert run(tmp_path, "checkpoint", "--stages", "1") == 0
    assert exports == ["int8"]
    assert json.loads((next((tmp_path / "store" / "sources").iterdir())).read_text())["kind"] == "ir"
    assert 'weights = "int8"' in (tmp_path / "config" / "shards" / "checkpoint.toml").read_text()


def test_a_checkpoint_without_torch_is_refused_before_anything(tmp_path: Path, capsys: Printed) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    assert run(tmp_path, str(folder), "--yes") == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "error: a checkpoint is exported with torch and optimum-intel, and torch is not installed\n"
    )
    assert "-i https://download.pytorch.org/whl/cpu torch torchvision" in said


def test_a_disk_that_fills_is_one_line_and_leaves_nothing(
    tmp_path: Path, tiny_gguf: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(whole_module, "convert_gguf", full)
    assert run(tmp_path, str(tiny_gguf), "--yes") == 2
    assert "error: no space is left on the disk of" in capsys.readouterr().err
    assert half_built(tmp_path) == []
    assert Store(tmp_path / "store").builds() == []


LIMITED = (
    "import resource, sys\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)\n"
    "from fleetchat.cli.main import main\n"
    "sys.exit(main(sys.argv[2:]))\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exported", "gguf"])
def test_a_disk_that_takes_no_more_in_the_middle_of_a_file_is_one_line(
    tmp_path: Path, tiny_gguf: Path, kind: str
) -> None:
    """A real failure in mid-write, of OpenVINO or of the converter: the size of a file is limited."""
    model, limit = tiny_gguf, tiny_gguf.stat().st_size // 2
    if kind == "exported":
        model, limit = tmp_path / "model", 300_000
        write_tiny_model(model)
    command = ["shards", "build", str(model), "--yes", "--store", str(tmp_path / "store")]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *command],
        capture_output=True,
        text=True,
        check=False,
        env=child_environment(),
        cwd=Path(__file__).parents[2],
    )
    assert done.stderr.splitlines()[-2:] == [
        f"error: no space is left on the disk of {tmp_path / 'store'}; nothing was stored",
        "hint: free some space, remove builds with `fleetchat shards rm`, or choose --store DIR",
    ]
    assert done.returncode == 2
    assert half_built(tmp_path) == []
    assert Store(tmp_path / "store").builds() == []
    assert not (tmp_path / "config" / "shards").exists()


@pytest.mark.parametrize(
    ("file", "keep", "said"),
    [
        ("openvino_model.bin", 0.5, "openvino_model.bin is cut off: the weights need "),
        (
            "openvino_model.xml",
            0.5,
            "openvino_model.xml is cut off: it does not end as an OpenVINO model does",
        ),
        ("tokenizer.json", 0.5, "tokenizer.json is not a tokenizer: "),
        ("tokenizer.json", 0, " has no tokenizer.json"),
        ("openvino_model.bin", 0, " has no OpenVINO model: expected openvino_model.xml and its .bin"),
        ("chat_template.jinja", 0.5, "chat_template.jinja: the chat template is wrong in line "),
        ("chat_template.jinja", 0, " has no chat template"),
    ],
)
def test_an_exported_folder_that_is_not_whole_is_one_line(
    tmp_path: Path, capsys: Printed, file: str, keep: float, said: str
) -> None:
    folder = tmp_path / "model"
    write_tiny_model(folder)
    content = (folder / file).read_bytes()
    if keep:
        (folder / file).write_bytes(content[: int(len(content) * keep)])
    else:
        (folder / file).unlink()
    assert run(tmp_path, str(folder), "--yes") == 2
    (error,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    assert said in error
    assert half_built(tmp_path) == []
    assert Store(tmp_path / "store").builds() == []
