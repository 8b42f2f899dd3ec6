"""The locale: does it say that text is UTF-8?"""

from __future__ import annotations

from collections.abc import Mapping

from fleetchat.doctor.finding import Finding, ok, warn

NAME = "locale"
DECIDING = ("LC_ALL", "LC_CTYPE", "LANG")  # the first that is set wins


def check_encoding(encoding: str, environment: Mapping[str, str], *, platform: str) -> Finding:
    """`encoding` is the locale's, whatever Python's UTF-8 mode makes of it."""
    if platform == "win32":
        return ok(NAME, "the Windows console takes Unicode")
    setting = next((f"{name}={environment[name]}" for name in DECIDING if environment.get(name)), "")
    if encoding.lower().replace("-", "").replace("_", "") == "utf8":
        return ok(NAME, f"UTF-8 ({setting or 'the default'})")
    better = "en_US.UTF-8" if platform == "darwin" else "C.UTF-8"
    return warn(
        NAME,
        f"{setting or 'no locale is set, which'} means {encoding}, not UTF-8: terminals, tmux and ssh may "
        "show wrong letters and broken frames",
        f"export LC_ALL={better} (or a UTF-8 locale of your language; `locale -a` lists them)",
    )
