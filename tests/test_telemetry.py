from __future__ import annotations

import subprocess
import sys

import pytest

from fleetchat.child import child_environment


@pytest.mark.parametrize("library", ["openvino", "openvino_genai"])
def test_no_library_reports_about_the_user(library: str) -> None:
    """OpenVINO sends its own import to a web service, from a forked process that may outlive ours."""
    code = (
        f"import fleetchat, sys, {library}, openvino.tools.ovc as ovc\n"
        "print(type(ovc.telemetry).__module__, sys.modules['openvino_telemetry'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment()
    )
    assert (done.stdout, done.stderr) == ("openvino.tools.ovc.telemetry_stub None\n", "")
