"""The fleet beside the chat, and as one line below it."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.message import Message

from fleetchat.app.panel.layout import one_line_panel, side_lines
from fleetchat.app.panel.model import PanelModel
from fleetchat.app.panel.pointing import Spot
from fleetchat.app.widgets.lines_view import LinesView


class FleetPanel(LinesView):
    """Draws nothing while it is hidden, or while the terminal shows something else."""

    @dataclass
    class Explain(Message):
        """A figure was clicked."""

        spot: Spot

    def __init__(self, model: PanelModel, id: str) -> None:
        super().__init__(id=id)
        self._model = model
        self._drawn: tuple[object, object] | None = None  # what stands still, and in which size

    def draw(self) -> None:
        """Show what the model has. Where nothing moves, the lines are not even made anew."""
        if not (self.display and self.app.app_focus and self.size.width):
            return
        still = self._model.still()
        drawn = (still, self.content_size) if still is not None else None
        if drawn is None or drawn != self._drawn:
            self._drawn = drawn
            self.draw_now()

    def draw_now(self) -> None:
        """Show it in the present size."""

    def on_show(self) -> None:
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self.draw()

    def on_click(self, event: events.Click) -> None:
        spot = self.spot_under(event.x, event.y)
        if spot is not None:
            self.post_message(self.Explain(spot))


class FleetSide(FleetPanel):
    """Beside the chat, on screens that are wide enough."""

    DEFAULT_CSS = """
    FleetSide {
        width: 40%; max-width: 64; height: 1fr;
        padding: 0 1; border-left: solid $panel; display: none;
    }
    """

    def draw_now(self) -> None:
        view = self._model.view
        size = self.content_size
        self.show(side_lines(view, self._model.blocks, size.width, size.height) if view else [])


class FleetLine(FleetPanel):
    """Below the prompt, on narrow screens: one line, and one for each trouble.

    While the panel is hidden it tells the trouble alone.
    """

    DEFAULT_CSS = """
    FleetLine { height: 1; padding: 0 2; display: none; }
    """

    def __init__(self, model: PanelModel, id: str) -> None:
        super().__init__(model, id)
        self._only_trouble = False

    def limit(self, only_trouble: bool) -> None:
        """Whether the figures are left out."""
        if only_trouble is not self._only_trouble:
            self._only_trouble, self._drawn = only_trouble, None

    def draw_now(self) -> None:
        view, width = self._model.view, self.content_size.width
        lines = one_line_panel(view, self._model.blocks, width, self._only_trouble) if view else []
        self.styles.height = max(1, len(lines))
        self.show(lines)
