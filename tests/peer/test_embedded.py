from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetchat.errors import InputError, PeerUnreachable
from fleetchat.peer import embedded

ROOT = Path(__file__).resolve().parents[2]


def test_the_key_is_one_line_of_hexadecimal_digits() -> None:
    assert embedded.read_key_line(io.StringIO("ab" * 32 + "\nmore")) == b"\xab" * 32


@pytest.mark.parametrize("text", ["", "\n", "ab" * 31 + "\n", "ab" * 33 + "\n", "zz" * 32 + "\n"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        embedded.read_key_line(io.StringIO(text))


def test_what_the_parent_reads_is_one_line_of_json() -> None:
    written = io.StringIO()
    embedded.announce(written, port=4711)
    assert written.getvalue() == '{"port": 4711}\n'
    written = io.StringIO()
    embedded.announce_failure(written, PeerUnreachable("no\nway", hint="go"))
    assert written.getvalue().count("\n") == 1
    assert json.loads(written.getvalue()) == {"error": "no\nway", "hint": "go", "exit": 1}


LOGGING = """
import logging, os, sys
from pathlib import Path
from fleetchat.peer import embedded
embedded.LOG_BYTES = 2000
embedded.log_to(Path(sys.argv[1]))
for number in range(300):
    logging.getLogger("stage").info("event %d", number)
os.write(2, b"from a native library\\n")
raise RuntimeError("uncaught")
"""


def test_the_log_is_rotated_and_takes_stderr_along(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "stage0.log"
    done = subprocess.run(
        [sys.executable, "-c", LOGGING, str(log)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    names = sorted(path.name for path in log.parent.iterdir())
    assert names == ["stage0.log", "stage0.log.1", "stage0.log.2", "stage0.log.3"]
    last = log.read_text()
    assert "event 299" in last
    assert "from a native library\n" in last
    assert last.rstrip().endswith("RuntimeError: uncaught")
    assert all(path.stat().st_size < 3000 for path in log.parent.iterdir())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no pinning here")
def test_pinning_where_the_system_can() -> None:
    before = os.sched_getaffinity(0)
    try:
        core = min(before)
        assert embedded.pin_to(frozenset({core}))
        assert os.sched_getaffinity(0) == {core}
    finally:
        os.sched_setaffinity(0, before)
    assert not embedded.pin_to(frozenset())


def test_no_pinning_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert not embedded.pin_to(frozenset({0}))
