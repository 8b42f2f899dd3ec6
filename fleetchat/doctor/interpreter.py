"""Python itself."""

from __future__ import annotations

import platform
import sys

from fleetchat import __version__
from fleetchat.doctor.finding import Finding, fail, ok

NAME = "Python"
LEAST = (3, 11)


def check_interpreter(
    version: tuple[int, int] = sys.version_info[:2], largest_integer: int = sys.maxsize
) -> Finding:
    """Is it new enough, and a 64-bit one (OpenVINO has no other)?"""
    bits = 64 if largest_integer > 2**32 else 32
    text = (
        f"fleetchat {__version__} on {platform.python_implementation()} {platform.python_version()}, "
        f"{bits} bits, {platform.system()} {platform.machine()}"
    )
    if version < LEAST or bits != 64:
        wanted = f"a 64-bit Python {LEAST[0]}.{LEAST[1]} or newer"
        return fail(NAME, f"{text}: fleetchat needs {wanted}", f"install {wanted}, and fleetchat in it")
    return ok(NAME, text)
