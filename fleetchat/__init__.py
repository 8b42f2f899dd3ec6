"""fleetchat: chat in the terminal with a language model that is split over several machines."""

import sys

__version__ = "0.1.0"

# `import openvino` reports the import to a web analytics service, from a process that it forks. Beside
# the thread that reads stdin that process never ends, and nothing here reports about its user. Without
# this module openvino takes its own stand-in that sends nothing.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
