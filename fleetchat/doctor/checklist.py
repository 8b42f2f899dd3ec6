"""How checks are run: each takes its time, a failure is a finding, what cannot run is skipped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetchat.doctor.finding import Finding, Status, fail, failure_of, skipped
from fleetchat.errors import FleetchatError

LAST_REMEDY = "`fleetchat paths --logs --tail 20` shows what the parts of fleetchat noted"
REMEDIES = {  # where an error has no hint of its own
    "config": "correct it; the shipped fleet.toml (`fleetchat paths` shows where it is) has every key",
    "recipe": "correct the recipe, or choose another with recipe under [model]",
    "shards": "correct the recipe's [source]",
    "tokenizer": "build the shards again with `fleetchat shards build`",
}


@dataclass(slots=True)
class Checklist:
    """`begin` hears the name of each check, `report` its finding as soon as there is one.

    `log_error` keeps the traceback of a mistake of ours, and says where.
    """

    begin: Callable[[str], None]
    report: Callable[[Finding], None]
    log_error: Callable[[BaseException], Path | None]
    findings: list[Finding] = field(default_factory=list)

    def check(
        self, name: str, check: Callable[[], Finding], *, needs: tuple[str, ...] = (), missing: str = ""
    ) -> None:
        """Run a check, unless one that it needs did not pass or something else is `missing`."""
        hindrance = self.hindrance(needs, missing)
        if hindrance:
            self.note(skipped(name, f"not checked: {hindrance}"))
            return
        self.begin(name)
        started = time.perf_counter()
        found = self.guarded(name, check)
        self.note(replace(found, milliseconds=(time.perf_counter() - started) * 1000))

    def hindrance(self, needs: tuple[str, ...], missing: str = "") -> str:
        """Why a check cannot run, the first cause first; empty when it can."""
        concerned = [finding for finding in self.findings if finding.name in needs]
        failed = [finding.name for finding in concerned if finding.status is Status.FAIL]
        not_checked = [finding.name for finding in concerned if finding.status is Status.SKIPPED]
        if failed:
            return f"{failed[0]} failed"
        return missing or (f"{not_checked[0]} was not checked" if not_checked else "")

    def note(self, finding: Finding) -> None:
        """Keep and report a finding."""
        self.findings.append(finding)
        self.report(finding)

    def guarded(self, name: str, check: Callable[[], Finding]) -> Finding:
        """A check that raises has found something too."""
        try:
            return check()
        except FleetchatError as error:
            return failure_of(name, error, REMEDIES.get(name, LAST_REMEDY))
        except ModuleNotFoundError as error:
            return fail(name, f"the package {error.name} is missing", f"python -m pip install {error.name}")
        except Exception as error:
            log = self.log_error(error)
            return fail(
                name,
                f"the check itself failed: {type(error).__name__}: {error}",
                f"report it, this is a mistake of fleetchat{f'; the details are in {log}' if log else ''}",
            )
