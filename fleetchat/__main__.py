"""`python -m fleetchat` and the `fleetchat` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    try:
        from fleetchat.cli.main import main as run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # Ctrl+C while the first imports are running
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
