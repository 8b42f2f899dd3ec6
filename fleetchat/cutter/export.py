"""Checkpoint -> stateful OpenVINO IR, by optimum-intel in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from fleetchat.child import child_environment, run_child
from fleetchat.cutter.checkpoint import weight_bytes
from fleetchat.cutter.files import failed_write
from fleetchat.errors import BuildError, SourceError

OnProgress = Callable[[str, int, int], None]

# The ordinary index gives the large torch for graphics cards.
TORCH_LINE = "python -m pip install -i https://download.pytorch.org/whl/cpu torch torchvision"
EXPORTER_LINE = "python -m pip install '.[export]' (in fleetchat's checkout)"


def check_exporter(
    installed: Callable[[str], bool] = lambda name: importlib.util.find_spec(name) is not None,
) -> None:
    """Raise SourceError, with the lines to type, unless torch and optimum-intel are installed."""
    if not installed("torch"):
        raise SourceError(
            "a checkpoint is exported with torch and optimum-intel, and torch is not installed",
            hint=f"without a graphics card: {TORCH_LINE} && {EXPORTER_LINE}",
        )
    missing = [name for name in ("optimum", "nncf") if not installed(name)]
    if missing:
        raise SourceError(
            f"a checkpoint is exported with optimum-intel, and {missing[0]} is not installed",
            hint=EXPORTER_LINE,
        )


def export(checkpoint: Path, weights: str, scratch: Path, on_progress: OnProgress) -> None:
    """Export into `scratch`/ir. Raises SourceError for what cannot be exported, BuildError, OSError."""
    on_progress(f"exporting {checkpoint.name} as {weights} (optimum-intel)", 0, 0)
    target, report, work = scratch / "ir", scratch / "report.json", scratch / "work"
    work.mkdir()
    command = [
        *(sys.executable, "-P", "-m", "fleetchat.cutter.export_process"),
        *(str(checkpoint.absolute()), weights, str(target), str(report)),
    ]
    environment = {
        **child_environment(),
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work)),
        **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "OPENVINO_TELEMETRY_OPT_OUT"), "1"),
    }
    code, said = run_child(command, environment)
    if code != 0:
        full = None if report.is_file() else failed_write(scratch, weight_bytes(checkpoint) // 4)
        if full is not None:
            raise full
        raise _failure(checkpoint, report, said, code)


def _failure(checkpoint: Path, report: Path, said: str, code: int) -> SourceError | BuildError:
    try:
        told = json.loads(report.read_text(encoding="utf-8"))
        return SourceError(f"{checkpoint}: {told['error']}", hint=told["hint"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if code < 0 and os.name != "nt":
        killed = " (memory may have run out)" if code == -9 else ""
        return BuildError(f"the export of {checkpoint} was ended by signal {-code}{killed}")
    last = lines[-1] if lines else f"exit code {code}"
    return BuildError(
        f"the export of {checkpoint} failed: {last[:400]}",
        hint="optimum-intel said it; see its documentation",
    )
