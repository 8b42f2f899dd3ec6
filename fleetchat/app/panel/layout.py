"""The panel in its three sizes: one line, beside the chat, and the whole screen (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from fleetchat.app.panel import numbers
from fleetchat.app.panel.event_lines import event_lines
from fleetchat.app.panel.history import BlockHistory
from fleetchat.app.panel.lanes import timeline_lines
from fleetchat.app.panel.lines import Line, Span, flowing
from fleetchat.app.panel.speculation import speculation_lines
from fleetchat.app.panel.stages import WELL, heat_words, stage_lines, trouble_lines
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.telemetry import FleetSnapshot
from fleetchat.fleet.timeline import TimelineSnapshot

SIDE_FROM = 116  # cells of a screen from which there is room beside the chat
SIDE_LEAST, SIDE_MOST = 46, 64
LEAST_EVENTS, MOST_EVENTS = 3, 200
ZOOMS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds on the screen


class PanelMode(Enum):
    """What F9 goes through, in this order."""

    HIDDEN = "hidden"
    SIDE = "side"
    FULL = "full"

    @property
    def following(self) -> PanelMode:
        modes = list(PanelMode)
        return modes[(modes.index(self) + 1) % len(modes)]


@dataclass(frozen=True, slots=True)
class Watching:
    """How somebody looks at the panel. `end` None follows the newest; else it is paused at that moment."""

    seconds: float = 1.0
    end: float | None = None
    kind: EventKind | None = None

    @property
    def paused(self) -> bool:
        return self.end is not None

    def zoomed(self, steps: int) -> Watching:
        """Closer by so many steps."""
        place = min(max(ZOOMS.index(self.seconds) - steps, 0), len(ZOOMS) - 1)
        return replace(self, seconds=ZOOMS[place])

    def stepped(self, steps: int, now: float) -> Watching:
        """Paused, a quarter of the shown time later; never later than `now`."""
        end = (now if self.end is None else self.end) + steps * self.seconds / 4
        return replace(self, end=min(end, now))

    def toggled(self, now: float) -> Watching:
        """Paused at `now`, or following again."""
        return replace(self, end=now if self.end is None else None)


def side_width(screen: int) -> int:
    """Cells of the panel beside the chat; 0 = one line below it instead."""
    if screen < SIDE_FROM:
        return 0
    return min(max(SIDE_LEAST, screen * 2 // 5), SIDE_MOST)


def full_lines(
    view: PanelView, blocks: BlockHistory, watching: Watching, width: int, height: int
) -> list[Line]:
    """Everything. It may be higher than the screen: then it scrolls."""
    snapshot = view.snapshot
    lines = [
        *trouble_lines(snapshot, width),
        *stage_lines(view, width),
        *timeline_lines(
            view, shown_window(blocks, watching), width, note=pause_words(watching, snapshot.taken)
        ),
        *speculation_lines(view, width),
    ]
    room = max(LEAST_EVENTS, min(height - len(lines) - 1, MOST_EVENTS))
    return [*lines, *event_lines(view, watching.kind, width, room)]


def side_lines(view: PanelView, blocks: BlockHistory, width: int, height: int) -> list[Line]:
    """As much as fits: what matters most stands first, events take what is left."""
    snapshot = view.snapshot
    lines = [
        *trouble_lines(snapshot, width),
        *stage_lines(view, width, note="F9 shows more"),
        *timeline_lines(view, shown_window(blocks, Watching()), width),
        *speculation_lines(view, width),
    ]
    if height - len(lines) > LEAST_EVENTS:
        lines += event_lines(view, None, width, height - len(lines) - 1)
    return lines[:height]


def shown_window(blocks: BlockHistory, watching: Watching) -> TimelineSnapshot | None:
    """The stretch of time that is looked at."""
    if blocks.newest is None:
        return None
    end = blocks.newest.end if watching.end is None else watching.end
    return blocks.window(end, watching.seconds)


def pause_words(watching: Watching, now: float) -> str:
    """`paused, 2.3 s ago`; nothing while the newest is shown."""
    if watching.end is None:
        return ""
    return f"paused, {max(0.0, now - watching.end):.1f} s ago"


def one_line_panel(
    view: PanelView, blocks: BlockHistory, width: int, only_trouble: bool = False
) -> list[Line]:
    """The whole fleet in one line; a stage in trouble has a line of its own above it."""
    snapshot = view.snapshot
    trouble = trouble_lines(snapshot, width)[:2]
    return trouble if only_trouble else [*trouble, summary(snapshot, blocks, width)]


def summary(snapshot: FleetSnapshot, blocks: BlockHistory, width: int) -> Line:
    """`2 of 2 stages ready  21.4 tokens/s  idle 31% 28%  right 61%  back 0.3 ms`, as much as fits."""
    stages = snapshot.stages
    well = sum(stage.state in WELL for stage in stages)
    look = "good" if well == len(stages) else "bad"
    parts: list[Line] = [
        (Span(f"{well} of {len(stages)} stages ready", look, "state", "fleet"),),
        (Span(f"{numbers.speed(snapshot.tokens_per_s):>6} tokens/s", "bold", "speed", "all chats"),),
    ]
    hot = [stage for stage in stages if stage.throttling]
    parts += [
        (Span(f"stage {one.index} {heat_words(one)}", "bad", "heat", f"stage {one.index}"),) for one in hot
    ]
    shown = shown_window(blocks, Watching())
    if shown is not None and not hot:
        idle = " ".join(f"{numbers.share(lane.bubbles):>4}" for lane in shown.stages[:4])
        parts.append((Span(f"idle {idle}", "plain", "bubbles", "all stages"),))
    total = snapshot.speculation
    if total is not None and total.drafted:
        parts.append(
            (Span(f"right {numbers.share(total.acceptance):>4}", "plain", "acceptance", "all chats"),)
        )
    leg = snapshot.return_network_ms
    words = numbers.milliseconds(leg.p50 if leg.count else None)
    parts.append((Span(f"back {words:>5} ms", "plain", "network", "the way back"),))
    parts.append((Span("F9 shows more", "dim"),))
    return flowing(parts, width, gap="  ")[0]
