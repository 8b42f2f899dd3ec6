"""The child process that runs optimum-intel.

Run as `python -m fleetchat.cutter.export_process FOLDER WEIGHTS TARGET REPORT`. Its memory stays out of the
build. It ends when its stdin does, so that it never outlives the build. What a user can mend is written to
REPORT as `{"error", "hint"}`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

TASK = "text-generation-with-past"
# Written out: without them optimum-intel takes a table by model, some entries of which fetch a data set.
INT4 = ("--group-size", "128", "--ratio", "1.0", "--group-size-fallback", "adjust")


class Refused(Exception):
    """The model cannot be exported with what is installed."""

    def __init__(self, error: str, hint: str) -> None:
        super().__init__(error)
        self.error, self.hint = error, hint


def check_gate(name: str, oldest: str | None, newest: str | None, installed: str, exporter: str) -> None:
    """Raise Refused unless transformers is of a version with which this kind of model is exported. Pure."""
    from packaging.version import Version

    own = Version(Version(installed).base_version)
    wanted = None
    if newest is not None and own > Version(newest.replace("99", "999")):
        wanted, said = f"<={newest}", f"up to {newest}"
    elif oldest is not None and own < Version(oldest):
        wanted, said = f">={oldest}", f"from {oldest} on"
    if wanted is not None:
        raise Refused(
            f"optimum-intel {exporter} exports {name} models with transformers {said}, and {installed} is "
            "installed",
            f"python -m pip install 'transformers{wanted}' (in an environment of its own, if you like), then "
            "build again",
        )


def check_kind(checkpoint: str) -> None:
    """Raise Refused for a kind of model that is not exported, or not with this transformers."""
    from optimum.exporters.openvino import model_configs  # noqa: F401 (registers the kinds)
    from optimum.exporters.tasks import TasksManager

    name = json.loads((Path(checkpoint) / "config.json").read_text(encoding="utf-8"))["model_type"].replace(
        "-", "_"
    )
    kinds = TasksManager._SUPPORTED_MODEL_TYPE
    exporter = importlib.metadata.version("optimum-intel")
    tasks = kinds.get(name, kinds.get(name.replace("_", "-"), {})).get("openvino", {})
    if TASK not in tasks:
        raise Refused(
            f"optimum-intel {exporter} does not export {name} models as text models",
            "take another model, or an OpenVINO export of this one",
        )
    made = getattr(tasks[TASK], "func", tasks[TASK])
    gates = [getattr(made, f"{end}_TRANSFORMERS_VERSION", None) for end in ("MIN", "MAX")]
    oldest, newest = (None if gate is None else str(getattr(gate, "base_version", gate)) for gate in gates)
    check_gate(name, oldest, newest, importlib.metadata.version("transformers"), exporter)


def run(checkpoint: str, weights: str, target: str) -> None:
    """Export by optimum's own command line."""
    from optimum.commands.optimum_cli import main as optimum_cli

    options = INT4 if weights == "int4" else ()
    sys.argv = [
        *("optimum-cli", "export", "openvino", "--model", checkpoint, "--task", TASK),
        *("--library", "transformers", "--weight-format", weights, *options, target),
    ]
    optimum_cli()


def _end_with_parent() -> None:
    """Block until the parent is gone."""
    sys.stdin.buffer.read()
    os._exit(1)


def main(arguments: list[str]) -> Any:
    """Export, or leave a report; ends the process."""
    checkpoint, weights, target, report = arguments
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        check_kind(checkpoint)
        run(checkpoint, weights, target)
    except Refused as refusal:
        told = {"error": refusal.error, "hint": refusal.hint}
        Path(report).write_text(json.dumps(told), encoding="utf-8")
        os._exit(2)
    except BaseException as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
