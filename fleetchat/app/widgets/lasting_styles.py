"""Looks of a widget's parts, worked out once."""

from __future__ import annotations

from typing import Any

from rich.style import Style
from textual.css.styles import RenderStyles
from textual.widget import Widget

Rules = tuple[RenderStyles | None, ...]


class LastingStyles(Widget):
    """Textual forgets the looks of components at every refresh; here they last as long as the rules do."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._lasting: dict[tuple[tuple[str, ...], bool], tuple[Rules, Style]] = {}
        super().__init__(*args, **settings)

    def get_component_rich_style(
        self, *names: str, partial: bool = False, default: Style | None = None
    ) -> Style:
        rules = tuple(self._component_styles.get(name) for name in names)
        kept, style = self._lasting.get((names, partial), ((), None))
        if style is None or any(now is not before for now, before in zip(rules, kept, strict=True)):
            style = super().get_component_rich_style(*names, partial=partial, default=default)
            self._lasting[names, partial] = (rules, style)
        return style

    def notify_style_update(self) -> None:
        self._lasting.clear()
        super().notify_style_update()
