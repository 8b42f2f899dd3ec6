"""A runtime without a fleet for tests of the screen: it notes what is asked, the test says what happens.

`StreamingRuntime` answers by itself from a thread, as the real one does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from fleetchat.app.events import (
    ChatNumber,
    FleetReady,
    ReplyFinished,
    Report,
    RuntimeEvent,
    SnapshotTaken,
    TextArrived,
)
from fleetchat.chat.turn import Turn
from fleetchat.errors import InputError
from fleetchat.fleet.telemetry import (
    Answer,
    FinishReason,
    FleetSnapshot,
    Percentiles,
    StageSnapshot,
    StageState,
)

MODEL = "Tiny-Test-1M"
CONTEXT = 2048


def answer(
    text: str,
    *,
    reason: FinishReason = FinishReason.STOP,
    tokens: int | None = None,
    error: tuple[str, str] | None = None,
) -> Answer:
    """An answer with one token a word, unless the number is given."""
    count = len(text.split()) if tokens is None else tokens
    return Answer(
        text=text,
        token_ids=tuple(range(count)),
        finish_reason=reason,
        seed=1,
        prompt_tokens=12,
        prompt_tokens_cached=0,
        ttft_ms=180.0,
        tokens_per_s=21.44,
        error=error,
    )


def stage(
    index: int,
    *,
    address: str = "",
    state: StageState = StageState.READY,
    detail: str = "",
    compute: float = 3.25,
) -> StageSnapshot:
    return StageSnapshot(
        index=index,
        address=address or f"127.0.0.1:{41000 + index}",
        first_layer=10 * index,
        last_layer=10 * index + 9,
        state=state,
        detail=detail,
        engine="masked",
        device="CPU",
        compute_ms=Percentiles(compute, 2 * compute, 50),
        queue_ms=Percentiles(0.1, 0.2, 50),
        network_ms=Percentiles(0.25, 0.5, 50) if index else Percentiles(),
        cells_granted=20_480,
        cells_live=1_234,
        cells_dead=0,
        memory_resident=0,
    )


def snapshot(*stages: StageSnapshot, tokens_per_s: float = 21.44) -> FleetSnapshot:
    return FleetSnapshot(
        model=MODEL,
        precision="fast",
        kv="masked",
        epoch=1,
        stages=stages or (stage(0), stage(1)),
        return_network_ms=Percentiles(0.3, 0.6, 50),
        sessions=(),
        tokens_per_s=tokens_per_s,
    )


@dataclass
class FakeRuntime:
    """Implements RuntimeControl; `say` reports an event."""

    started: int = 0
    submitted: list[tuple[ChatNumber, str]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    stopped: list[ChatNumber] = field(default_factory=list)
    closed: list[ChatNumber] = field(default_factory=list)
    switched: list[str] = field(default_factory=list)
    retried: int = 0
    proposals: int = 0
    changes: list[str] = field(default_factory=list)
    shut_down: bool = False
    report: Report | None = None

    def start(self, report: Report) -> None:
        self.started += 1
        self.report = report

    def submit(self, chat: ChatNumber, turn: Turn) -> None:
        self.submitted.append((chat, turn.prompt))
        self.turns.append(turn)

    def stop(self, chat: ChatNumber) -> None:
        self.stopped.append(chat)

    def close_chat(self, chat: ChatNumber) -> None:
        self.closed.append(chat)

    def models(self) -> list[tuple[str, str]]:
        return [("tiny", MODEL), ("other", "Other-2M")]

    def switch(self, model: str) -> None:
        self.switched.append(model)

    def propose_cut(self) -> None:
        self.proposals += 1

    def write_cut(self, cut: tuple[tuple[int, int], ...]) -> str:
        self.changes.append(f"cut {cut}")
        return "written"

    def add_peer(self, address: str, name: str) -> str:
        if address == "nowhere":
            raise InputError("'nowhere' is no address", hint="write HOST:PORT")
        self.changes.append(f"add {address} {name}")
        return f"Added {address}"

    def remove_peer(self, which: str) -> str:
        self.changes.append(f"remove {which}")
        return f"Removed {which}"

    def retry(self) -> None:
        self.retried += 1

    def shutdown(self, timeout: float) -> bool:
        self.shut_down = True
        return True

    def say(self, *events: RuntimeEvent) -> None:
        assert self.report is not None
        for event in events:
            self.report(event)

    def become_ready(self) -> None:
        self.say(FleetReady(MODEL, CONTEXT), SnapshotTaken(snapshot()))


class StreamingRuntime(FakeRuntime):
    """Answers every prompt with `pieces`, as fast as a thread can report, until it is stopped."""

    def __init__(self, pieces: list[str]) -> None:
        super().__init__()
        self._pieces = pieces
        self._ended = threading.Event()

    def start(self, report: Report) -> None:
        super().start(report)
        self.become_ready()

    def submit(self, chat: ChatNumber, turn: Turn) -> None:
        super().submit(chat, turn)
        self._ended.clear()
        threading.Thread(target=self._answer, args=(chat,), daemon=True).start()

    def stop(self, chat: ChatNumber) -> None:
        super().stop(chat)
        self._ended.set()

    def close_chat(self, chat: ChatNumber) -> None:
        super().close_chat(chat)
        self._ended.set()

    def shutdown(self, timeout: float) -> bool:
        self._ended.set()
        return super().shutdown(timeout)

    def _answer(self, chat: ChatNumber) -> None:
        written = ""
        for piece in self._pieces:
            if self._ended.wait(0.005):
                break
            written += piece
            self.say(TextArrived(chat, piece))
        reason = FinishReason.CANCELLED if self._ended.is_set() else FinishReason.STOP
        self.say(ReplyFinished(chat, answer(written, reason=reason)))
