"""A build that is called off leaves nothing half-built."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from fleetchat.cutter.store import Store
from fleetchat.fleet import provision
from fleetchat.fleet.provision import BuildProgress, build_in_process

pytestmark = pytest.mark.trio

BUILDER = """
import json, sys, threading
from pathlib import Path
from fleetchat.cutter.store import Store
with Store(Path(sys.argv[1])).locked(), Store(Path(sys.argv[1])).temporary("build") as folder:
    (folder / "stage-00.bin").write_bytes(bytes(100))
    print(json.dumps({"step": "cutting layers 0 to 17", "done": 0, "total": 2}), flush=True)
    threading.Event().wait()
"""


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_what_a_build_has_begun_goes_when_it_is_called_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        provision, "child_command", lambda *arguments: [sys.executable, "-c", BUILDER, str(tmp_path)]
    )
    store, seen = Store(tmp_path), []
    with trio.CancelScope() as scope:

        def note(progress: BuildProgress) -> None:
            seen.append((progress.step, len(list(store.temporary_folder.iterdir()))))
            scope.cancel()

        await build_in_process("tiny", 2, store=store, on_progress=note)
    assert seen == [("cutting layers 0 to 17", 1)]
    assert names_in(store.temporary_folder) == []
    assert names_in(tmp_path) == ["temporary"]
