"""Each promise of SECURITY.md names tests that exist."""

from __future__ import annotations

import re

from tests.architecture.checkout import CHECKOUT

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_each_promise_names_tests_that_exist() -> None:
    text = (CHECKOUT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.split("|---|---|\n")[1].split("\n\n")[0].splitlines()
    assert len(table) >= 15
    for row in table:
        found = NAMED.findall(row)
        assert found, row
        for path, name in found:
            source = (CHECKOUT / path).read_text(encoding="utf-8")
            assert re.search(rf"def {name}\(", source), f"{path}::{name}"
