from __future__ import annotations

from fleetchat.app.cells import fitted, one_line


def test_foreign_text_stays_in_its_line() -> None:
    assert one_line("a\nb\u2028c \x1b[2Jd") == "a b c [2Jd"


def test_fitting_counts_cells() -> None:
    assert fitted("東京タワー", 7) == "東京タ…"
    assert fitted("東京タワー", 6) == "東京… "
    assert fitted("ab", 4, right=True) == "  ab"
    assert fitted("abc", 1) == "…"
    assert fitted("abc", 0) == ""
