"""The findings as text for people and as JSON for programs."""

from __future__ import annotations

import json
import platform
import textwrap
from collections import Counter
from collections.abc import Sequence

from fleetchat import __version__
from fleetchat.doctor.finding import Finding, Status

STATUS_WIDTH, TIME_WIDTH, NAME_WIDTH = 7, 6, 9
REMEDY = "to do: "
LEAST_TEXT = 30  # columns; a narrower terminal wraps by itself


def lines(finding: Finding, columns: int | None) -> list[str]:
    """Text, details and remedy; `columns` None wraps nothing (a pipe: one line for each)."""
    time = duration(finding.milliseconds) if finding.status is not Status.SKIPPED else ""
    head = f"{finding.status.value:<{STATUS_WIDTH}}  {time:>{TIME_WIDTH}}  {finding.name:<{NAME_WIDTH}}  "
    margin = " " * len(head)
    found = _wrapped(finding.text, head, margin, columns)
    for detail in finding.details:
        found += _wrapped(detail, margin, margin + "  ", columns)
    if finding.remedy:
        indent = " " * (STATUS_WIDTH + 2)
        found += _wrapped(finding.remedy, indent + REMEDY, indent + " " * len(REMEDY), columns)
    return found


def summary(findings: Sequence[Finding], milliseconds: float) -> str:
    """One line: how many of each, and what is to be done first."""
    count = Counter(finding.status for finding in findings)
    parts = [
        _counted(count[Status.FAIL], "failure"),
        _counted(count[Status.WARN], "warning"),
        f"{count[Status.OK]} ok",
        f"{count[Status.SKIPPED]} skipped" if count[Status.SKIPPED] else "",
    ]
    text = f"{', '.join(part for part in parts if part)}, in {duration(milliseconds)}"
    if not count[Status.FAIL]:
        verdict = "fleetchat works here" if not count[Status.SKIPPED] else "nothing failed"
        return f"{verdict}: {text}"
    first = next(finding.name for finding in findings if finding.status is Status.FAIL)
    return f"{text}; begin with: {first}"


def failed(findings: Sequence[Finding]) -> bool:
    return any(finding.status is Status.FAIL for finding in findings)


def document(findings: Sequence[Finding], milliseconds: float) -> str:
    """One JSON object."""
    count = Counter(finding.status for finding in findings)
    return json.dumps(
        {
            "fleetchat": __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "findings": [
                {
                    "name": finding.name,
                    "status": finding.status.value,
                    "text": finding.text,
                    "remedy": finding.remedy,
                    "details": list(finding.details),
                    "milliseconds": round(finding.milliseconds, 1),
                }
                for finding in findings
            ],
            "count": {status.value: count[status] for status in Status},
            "milliseconds": round(milliseconds, 1),
        },
        indent=2,
        ensure_ascii=False,
    )


def duration(milliseconds: float) -> str:
    """`412 ms`, `6.1 s`."""
    return f"{milliseconds:.0f} ms" if milliseconds < 999.5 else f"{milliseconds / 1000:.1f} s"


def _wrapped(text: str, first: str, following: str, columns: int | None) -> list[str]:
    """Words stay whole, so that paths and commands can be copied."""
    text = " ".join(text.split())
    if columns is None:
        return [(first + text).rstrip()]
    width = max(columns, len(following) + LEAST_TEXT)
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""
