"""Numbers in words of fixed width, so that nothing jitters while they change (pure)."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
NOTHING = "–"


def milliseconds(value: float | None) -> str:
    """At most 6 cells: `3.2`, `999.9`, `12,345`."""
    if value is None:
        return NOTHING
    if value < 1_000:
        return f"{value:.1f}"
    return f"{value:,.0f}" if value < 100_000 else ">99 s"


def count(value: int) -> str:
    """At most 6 cells: `98,765`, `1.2M`."""
    if value < 100_000:
        return f"{value:,}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if value < 999.5 * size:
            return f"{value / size:.0f}{unit}" if value >= 99.95 * size else f"{value / size:.1f}{unit}"
    return ">999G"


def size(value: int) -> str:
    """Bytes, at most 7 cells: `32 kB`, `1.4 MB`, `135 MB`, `1.2 GB`."""
    if value <= 0:
        return NOTHING
    if value < 1_000:
        return f"{value} B"
    if value < 999.5e3:
        return f"{value / 1e3:.0f} kB"
    if value < 9.95e6:
        return f"{value / 1e6:.1f} MB"
    if value < 999.5e6:
        return f"{value / 1e6:.0f} MB"
    return f"{value / 1e9:.1f} GB" if value < 99.95e9 else f"{value / 1e9:.0f} GB"


def share(value: float | None) -> str:
    """At most 4 cells: `61%`."""
    return NOTHING if value is None else f"{value:.0%}"


def speed(value: float) -> str:
    """Tokens a second, at most 6 cells."""
    return f"{value:.1f}" if value < 1_000 else f"{min(value, 999_999):.0f}"


def seconds(value: float) -> str:
    """`0.5 s`, `120 ms`, `2 s`."""
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 10 and value != round(value) else f"{value:.0f} s"


def bars(shares: Sequence[float | None], length: int) -> str:
    """Shares from 0 to 1 as bars, the newest at the right; a blank where nothing is known."""
    shown = shares[-length:]
    drawn = (" " if one is None else BARS[round(min(max(one, 0.0), 1.0) * (len(BARS) - 1))] for one in shown)
    return "".join(drawn).rjust(length)


def history_bars(values: Sequence[float | None], length: int) -> str:
    """A history as bars, its highest value as the full bar."""
    top = max((value for value in values if value is not None), default=0.0)
    return bars([None if value is None else value / top if top else 0.0 for value in values], length)


def gauge(value: float | None, length: int) -> str:
    """A share as a bar: `██████░░░░`."""
    filled = round((value or 0.0) * length)
    return "█" * filled + "░" * (length - filled)
