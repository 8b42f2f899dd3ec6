"""`fleetchat doctor`: what works on this machine and fleet, what does not, and what to do about it."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.errors import ExitCode

if TYPE_CHECKING:
    from fleetchat.doctor.finding import Finding

# options of the doctor that set a key of the configuration
SETTINGS = {"recipe": "model.recipe", "stages": "fleet.stages"}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="what works here, what does not, and what to do",
        description="Check this machine and the configured fleet, step by step, up to one token that the "
        "stages draw together. Nothing is built or changed. Exit code 1 when something fails.",
    )
    parser.add_argument("--fleet", type=Path, metavar="FILE", help="the configuration file to check")
    parser.add_argument("--recipe", metavar="NAME", help="the model: a recipe's name or file")
    parser.add_argument("--stages", type=int, metavar="N", help="into how many stages the model is cut")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout instead of text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Examine and print; returns the exit code."""
    from fleetchat.cli.ask_output import progress_on_stderr
    from fleetchat.cli.output import log_exception
    from fleetchat.cli.peer import DEFAULT_LISTEN
    from fleetchat.config.address import parse_address
    from fleetchat.doctor.examination import Examination, Setting
    from fleetchat.doctor.report import document, failed, summary

    progress = progress_on_stderr()

    def show(finding: Finding) -> None:
        progress.clear()
        if not options.json:
            print_finding(finding)

    overrides = {key: getattr(options, name) for name, key in SETTINGS.items()}
    listen = parse_address(DEFAULT_LISTEN)
    setting = Setting(options.fleet, overrides, listen, log_error=log_exception)
    started = time.perf_counter()
    examination = Examination(setting, lambda name: progress.passing(f"checking {name} …"), show)
    findings = examination.run()
    milliseconds = (time.perf_counter() - started) * 1000
    progress.clear()
    print(document(findings, milliseconds) if options.json else summary(findings, milliseconds))
    return int(ExitCode.FAILED if failed(findings) else ExitCode.DONE)


def print_finding(finding: Finding) -> None:
    """On stdout, at once; wrapped for a terminal, one line for each text in a pipe."""
    from fleetchat.chat.sanitise import sanitise
    from fleetchat.doctor.report import lines

    columns = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
    for line in lines(finding, columns):
        print(sanitise(line), flush=True)
