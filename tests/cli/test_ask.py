from __future__ import annotations

import argparse
import io
import subprocess
import sys
from pathlib import Path

import pytest

from fleetchat.child import child_environment
from fleetchat.cli.ask import SETTINGS, read_stdin
from fleetchat.cli.ask_turns import Asked, Entry
from fleetchat.cli.main import build_parser, main
from fleetchat.errors import InputError


def options(*arguments: str) -> argparse.Namespace:
    return build_parser().read(["ask", *arguments])


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"FLEETCHAT_{name}_DIR", str(tmp_path / name))
    monkeypatch.chdir(tmp_path)


def test_prompts_and_turns_keep_their_order() -> None:
    read = options("--prompt", "A", "--then", "B", "C", "--then", "D", "--prompt", "E")
    assert read.entries == [
        Entry(Asked.PROMPT, "A"),
        Entry(Asked.THEN, "B"),
        Entry(Asked.PROMPT, "C"),
        Entry(Asked.THEN, "D"),
        Entry(Asked.PROMPT, "E"),
    ]


@pytest.mark.parametrize("arguments", [["A", "--seed", "1"], ["--seed", "1", "A"]])
def test_the_prompt_may_stand_before_or_behind_options(arguments: list[str]) -> None:
    read = options(*arguments)
    assert read.entries == [Entry(Asked.PROMPT, "A")]
    assert read.seed == 1


def test_without_a_prompt_there_are_no_entries() -> None:
    assert getattr(options("--json"), "entries", None) is None


def test_a_dash_is_a_prompt() -> None:
    assert options("-").entries == [Entry(Asked.PROMPT, "-")]


def test_stop_texts_and_ids_repeat() -> None:
    read = options("A", "--stop", "x", "--stop", "y", "--stop-id", "3", "--stop-id", "4")
    assert (read.stop, read.stop_id) == (["x", "y"], [3, 4])


def test_every_setting_has_an_option() -> None:
    assert set(SETTINGS) <= set(vars(options("A")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["A", "--temperature", "-1"], "command line: --temperature must be a number from 0 to 100"),
        (["A", "--temperature", "nan"], "command line: --temperature must be"),
        (["A", "--top-p", "2"], "command line: --top-p must be a number"),
        (["A", "--top-p", "0"], "command line: --top-p must be a number"),
        (["A", "--top-k", "-1"], "command line: --top-k must be a whole number"),
        (["A", "--repetition-penalty", "0"], "command line: --repetition-penalty must be"),
        (["A", "--stages", "0"], "command line: --stages must be a whole number"),
        (["A", "--stages", "two"], "command line: --stages must be a whole number, not 'two'"),
        (["A", "--temperature", "hot"], "command line: --temperature must be a number, not 'hot'"),
        (["A", "--max-tokens", "0"], "command line: --max-tokens must be"),
        (["A", "--context", "0"], "command line: --context must be"),
        (["A", "--seed", "-1"], "command line: --seed must be"),
        (["A", "--stop", ""], "command line: --stop must be"),
        (["A", "--stop-id", "-1"], "--stop-id must be 0 or more"),
        (["A", "--drafter", "ngrams"], "'ngrams' is not one of none, ngram, model, ngram+model"),
        (["A", "--drafter", "model"], "the drafter model needs a draft model"),
        (["A", "--draft-depth", "0"], "command line: --draft-depth must be"),
        (["A", "--draft-depth", "10000"], "command line: --draft-depth must be"),
        (["A", "--draft-depth", "deep"], "command line: --draft-depth must be"),
        (["A", "--max-draft", "0"], "command line: --max-draft must be"),
        (["A", "--kv", "pages"], "'pages' is not one of auto, masked, paged"),
        (["A", "--precision", "exakt"], "'exakt' is not one of exact, fast"),
        (["A", "--recipe", "smollm2-135"], "there is no recipe 'smollm2-135'"),
        (["A", "--raw", "--system", "x"], "--system has no place in --raw"),
        (["A", "--fleet", "missing.toml"], "missing.toml"),
        (["A", "B"], "'B' is one word too many"),
        (["A", "--temprature", "1"], "there is no option --temprature"),
        (["--then", "B", "--prompt", "A"], "--then stands before the first prompt"),
        ([""], "the prompt is empty"),
        (["A", "--then", " "], "prompt 2 of 2 is empty"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: "))


def stdin_of(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="ascii")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Zürich ☕\n".encode(), "Zürich ☕\n"),
        (b"\xef\xbb\xbfwith a mark", "with a mark"),
        (b"two\r\nlines\r\n", "two\nlines\n"),
        (b"", ""),
    ],
)
def test_stdin_is_utf_8_whatever_the_locale(
    monkeypatch: pytest.MonkeyPatch, content: bytes, text: str
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin_of(content))
    assert read_stdin() == text


def test_stdin_that_is_not_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", stdin_of(b"ok\xff"))
    with pytest.raises(InputError, match="stdin is not UTF-8 text: byte 2 is wrong"):
        read_stdin()


def test_a_closed_stdin_is_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="there is no prompt"):
        read_stdin()


def test_the_asking_process_loads_no_model_library() -> None:
    """They cost seconds and hundreds of megabytes; peers and builds load what they need."""
    code = (
        "import sys, fleetchat.cli.ask_job, tokenizers, jinja2.sandbox\n"
        "heavy = {'torch', 'transformers', 'openvino', 'openvino_genai', 'optimum', 'textual', 'gguf'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment()
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
