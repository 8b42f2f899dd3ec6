"""The events as lines: newest first, of all kinds or of one (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from fleetchat.app.cells import one_line
from fleetchat.app.panel.lines import Line, Span, cut, heading
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.event_log import EventKind, FleetEvent

LOOKS = {
    EventKind.LOST: "bad",
    EventKind.FAILED: "bad",
    EventKind.STALLED: "warn",
    EventKind.THROTTLING: "warn",
    EventKind.REFUSED: "warn",
    EventKind.STAYED: "warn",
    EventKind.RECOVERED: "good",
    EventKind.MOVED: "good",
    EventKind.HEARD: "good",
    EventKind.COOLED: "good",
}
KIND_WIDTH = max(len(kind.value) for kind in EventKind)
WHOSE_WIDTH = 8
ROOMY = 70  # cells from which an event names what it befell in a column of its own


def next_filter(kind: EventKind | None, events: Sequence[FleetEvent]) -> EventKind | None:
    """All events, then one kind after the other of those that there are."""
    there = [one for one in EventKind if any(event.kind is one for event in events)]
    if kind is None:
        return there[0] if there else None
    later = [one for one in there if list(EventKind).index(one) > list(EventKind).index(kind)]
    return later[0] if later else None


def filtered(events: Sequence[FleetEvent], kind: EventKind | None) -> list[FleetEvent]:
    """The newest first."""
    return [event for event in reversed(events) if kind is None or event.kind is kind]


def event_text(view: PanelView, event: FleetEvent) -> str:
    """One event as it is copied: `14:03:59  lost  stage 1  Stage 1 (…) stopped working.`"""
    whose = view.whose(event)
    parts = (view.time_of_day(event.at), event.kind.value, whose, one_line(event.text))
    return "  ".join(part for part in parts if part)


def event_lines(view: PanelView, kind: EventKind | None, width: int, limit: int) -> list[Line]:
    """Title and at most `limit` events."""
    events = filtered(view.snapshot.events, kind)
    total = len(view.snapshot.events)
    note = f"{total:,}" if kind is None else f"{kind.value}: {len(events):,} of {total:,}"
    lines = [heading("Events", width, note=note)]
    if not events:
        return [*lines, cut((Span("nothing has happened", "dim"),), width)]
    return [*lines, *(_line(view, event, width) for event in events[:limit])]


def _line(view: PanelView, event: FleetEvent, width: int) -> Line:
    whose = f"{view.whose(event):<{WHOSE_WIDTH}} " if width >= ROOMY else ""
    subject = event_text(view, event)
    return cut(
        (
            Span(f"{view.time_of_day(event.at)} ", "dim", "event", subject),
            Span(f"{event.kind.value:<{KIND_WIDTH}} ", LOOKS.get(event.kind, "plain"), "event", subject),
            Span(f"{whose}{one_line(event.text)}", "plain", "event", subject),
        ),
        width,
    )
