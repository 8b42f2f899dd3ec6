"""`python -m fleetchat` and the `fleetchat` command."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from fleetchat.child import ABANDONABLE


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    try:
        from fleetchat.cli.main import main as run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # Ctrl+C while the first imports are running
        code = 130
    if any(thread.name == ABANDONABLE for thread in threading.enumerate()):
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # the interpreter must not be taken down under a library that computes
    sys.exit(code)


if __name__ == "__main__":
    main()
