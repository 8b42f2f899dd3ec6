"""Speculation: what was guessed, what was right, what had to be taken back (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetchat.app.cells import one_line
from fleetchat.app.panel import numbers
from fleetchat.app.panel.lines import Column, Line, Span, cut, heading, tab_look, table
from fleetchat.app.panel.view import PanelView
from fleetchat.fleet.telemetry import SpeculationSnapshot

SPARK = 12
GAUGE = 10


@dataclass(frozen=True, slots=True)
class _Scope:
    """All chats together, or one of them."""

    name: str
    look: str
    counted: SpeculationSnapshot
    tokens: int
    dead: int


def speculation_lines(view: PanelView, width: int) -> list[Line]:
    """Title, gauge and reason, a table with a row a scope, the histogram of accepted lengths."""
    total = view.snapshot.speculation
    if total is None:
        return [heading("Speculation", width), cut((Span("nothing is counted yet", "dim"),), width)]
    scopes = _scopes(view, total)
    return [
        heading("Speculation", width),
        gauge_line(total, width),
        *table(_columns(scopes), width),
        histogram_line(total, width),
    ]


def gauge_line(total: SpeculationSnapshot, width: int) -> Line:
    """`ngram  ██████░░░░  61% right   depth  4  best of …`."""
    accepted = f"{numbers.gauge(total.acceptance, GAUGE)} {numbers.share(total.acceptance):>4} right"
    depth = f"depth {total.depth:2d}"
    reason = one_line(total.reason)
    spans = (
        Span(one_line(total.drafter), "bold", "drafter", "all chats"),
        Span("  "),
        Span(accepted, "accent", "acceptance", "all chats"),
        Span("   "),
        Span(depth, "plain", "depth", reason or "all chats"),
        Span(f"  {reason}" if reason else "", "dim", "depth", reason),
    )
    return cut(spans, width)


def histogram_line(total: SpeculationSnapshot, width: int) -> Line:
    """`right of a round: 0▂ 12%  1▁  3%  2█ 61% …`: shares of the rounds that guessed."""
    rounds = sum(total.by_accepted)
    if not rounds:
        return cut((Span("no round has guessed yet", "dim", "accepted", "all chats"),), width)
    most = max(total.by_accepted)
    spans = [Span("right a round", "dim")]
    for number, hits in enumerate(total.by_accepted):
        bar = numbers.bars([hits / most], 1)
        text = f"  {number}{bar}{numbers.share(hits / rounds):>4}"
        spans.append(Span(text, "plain", "accepted", f"{hits} of {rounds} rounds had {number} right"))
    return cut(tuple(spans), width)


def _scopes(view: PanelView, total: SpeculationSnapshot) -> list[_Scope]:
    sessions = view.snapshot.sessions
    scopes = [
        _Scope(
            "all", "bold", total, sum(one.tokens for one in sessions), sum(one.cells_dead for one in sessions)
        )
    ]
    for one in view.sessions:
        if one.speculation is not None:
            place = view.place(one.session)
            scopes.append(
                _Scope(f"chat {place}", tab_look(place), one.speculation, one.tokens, one.cells_dead)
            )
    return scopes


def _columns(scopes: list[_Scope]) -> list[Column]:
    def column(title: str, figure: str, words: Callable[[_Scope], str], width: int, keep: int) -> Column:
        cells = [Span(words(scope), "plain", figure, scope.name) for scope in scopes]
        return Column(title, cells, width, keep)

    return [
        Column("Chat", [Span(scope.name, scope.look) for scope in scopes], 7, 99, numeric=False),
        column("Right", "acceptance", lambda scope: numbers.share(scope.counted.acceptance), 5, 9),
        column("recent", "acceptance", lambda scope: numbers.bars(scope.counted.recent, SPARK), SPARK, 4),
        column("Depth", "depth", lambda scope: str(scope.counted.depth), 5, 6),
        column("Rounds", "rounds", lambda scope: numbers.count(scope.counted.rounds), 6, 5),
        column("Tokens", "tokens", lambda scope: numbers.count(scope.tokens), 6, 3),
        column("Rolled", "rollbacks", lambda scope: numbers.count(scope.counted.rollbacks), 6, 8),
        column("Masked", "masked", lambda scope: numbers.count(scope.counted.cells_masked), 6, 7),
        column("Dead", "cells-dead", lambda scope: numbers.count(scope.dead), 6, 2),
        column("Compact", "compactions", lambda scope: numbers.count(scope.counted.compactions), 7, 1),
    ]
