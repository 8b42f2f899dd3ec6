"""One chat on the screen: its transcript and its prompt. Hidden, it costs nothing."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from fleetchat.app.chat_state import ChatState
from fleetchat.app.prompt_history import PromptHistory
from fleetchat.app.widgets.prompt import Prompt
from fleetchat.app.widgets.suggestions import Suggestions
from fleetchat.app.widgets.transcript import Transcript
from fleetchat.chat.tree import Node


class ChatPane(Vertical):
    """While it is hidden the state alone changes; `catch_up` shows what came meanwhile."""

    DEFAULT_CSS = """
    ChatPane { height: 1fr; display: none; }
    ChatPane.-shown { display: block; }
    """

    def __init__(self, state: ChatState, history: PromptHistory) -> None:
        super().__init__()
        self.state = state
        self.transcript = Transcript()
        self.suggestions = Suggestions()
        self.prompt = Prompt(history, self.suggestions)

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self.suggestions
        yield self.prompt

    @property
    def shown(self) -> bool:
        return self.has_class("-shown")

    async def catch_up(self) -> None:
        """Bring the transcript to what the state is."""
        path = self.state.path
        versions = {node.id: words for node in path if (words := self.state.version_words(node))}
        await self.transcript.show(path, versions)

    async def update_reply(self, node: Node | None) -> None:
        """The reply under way has changed."""
        if node is not None and self.shown:
            await self.transcript.update_reply(node)
