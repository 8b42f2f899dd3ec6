"""The thread between the screen and trio, without a screen."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fleetchat.app.bridge import RuntimeThread
from fleetchat.app.chat_task import GenerationSettings
from fleetchat.app.events import (
    ChatNumber,
    FleetReady,
    ReplyFinished,
    Report,
    RuntimeEvent,
    RuntimeFailed,
    TextArrived,
)
from fleetchat.app.runtime import ChatRuntime
from fleetchat.fleet.session import SamplingSettings
from fleetchat.fleet.telemetry import FinishReason
from tests.app.turns import asking
from tests.fakes.chat_fleet import FakeBackend

ONE = ChatNumber(1)
SETTINGS = GenerationSettings(SamplingSettings(), seed=1, max_tokens=9, stop_strings=())


@contextmanager
def bridged(backend: FakeBackend) -> Iterator[tuple[RuntimeThread, queue.Queue[RuntimeEvent]]]:
    events: queue.Queue[RuntimeEvent] = queue.Queue()
    bridge = RuntimeThread(lambda report: ChatRuntime(backend, SETTINGS, report))
    bridge.start(events.put)
    try:
        yield bridge, events
    finally:
        assert bridge.shutdown(5)


def wait_for(events: queue.Queue[RuntimeEvent], condition: Callable[[RuntimeEvent], bool]) -> RuntimeEvent:
    while True:
        event = events.get(timeout=30)
        if condition(event):
            return event


def test_a_prompt_goes_in_and_text_comes_out_from_the_other_thread() -> None:
    with bridged(FakeBackend(pace=0.0)) as (bridge, events):
        wait_for(events, lambda event: isinstance(event, FleetReady))
        bridge.submit(ONE, asking("hello"))
        texts: list[str] = []  # one, or more where this thread is kept waiting between two words

        def is_end(event: RuntimeEvent) -> bool:
            if isinstance(event, TextArrived):
                assert event.chat == ONE
                texts.append(event.text)
            return isinstance(event, ReplyFinished)

        finished = wait_for(events, is_end)
        assert "".join(texts) == "one two three"
        assert isinstance(finished, ReplyFinished)
        assert finished.answer.finish_reason is FinishReason.STOP


def test_stop_reaches_a_reply_under_way() -> None:
    with bridged(FakeBackend(script=["word"] * 10_000, pace=0.001)) as (bridge, events):
        wait_for(events, lambda event: isinstance(event, FleetReady))
        bridge.submit(ONE, asking("hello"))
        wait_for(events, lambda event: isinstance(event, TextArrived))
        bridge.stop(ONE)
        finished = wait_for(events, lambda event: isinstance(event, ReplyFinished))
        assert isinstance(finished, ReplyFinished)
        assert finished.answer.finish_reason is FinishReason.CANCELLED


def test_shutdown_cleans_up_in_the_middle_of_a_reply() -> None:
    backend = FakeBackend(script=["word"] * 10_000, pace=0.001)
    with bridged(backend) as (bridge, events):
        wait_for(events, lambda event: isinstance(event, FleetReady))
        bridge.submit(ONE, asking("hello"))
        wait_for(events, lambda event: isinstance(event, TextArrived))
    assert backend.closed == 1
    assert not any(thread.name == "fleetchat-runtime" for thread in threading.enumerate())
    bridge.submit(ONE, asking("nobody is there"))
    bridge.stop(ONE)
    assert bridge.shutdown(1)


def test_shutdown_before_the_start_and_right_after_it() -> None:
    idle = RuntimeThread(lambda report: ChatRuntime(FakeBackend(), SETTINGS, report))
    idle.submit(ONE, asking("nothing runs yet"))
    assert idle.shutdown(1)
    with bridged(FakeBackend()):
        pass


def test_a_runtime_that_cannot_be_made_is_reported_and_tried_again() -> None:
    attempts: list[Report] = []

    def make(report: Report) -> ChatRuntime:
        attempts.append(report)
        if len(attempts) == 1:
            raise ValueError("broken installation")
        return ChatRuntime(FakeBackend(), SETTINGS, report)

    events: queue.Queue[RuntimeEvent] = queue.Queue()
    bridge = RuntimeThread(make)
    bridge.start(events.put)
    failed = wait_for(events, lambda event: isinstance(event, RuntimeFailed))
    assert failed == RuntimeFailed(
        "unexpected ValueError: broken installation", "this is a fault of fleetchat; the log has the details"
    )
    for thread in threading.enumerate():
        if thread.name == "fleetchat-runtime":
            thread.join(5)
    bridge.retry()
    wait_for(events, lambda event: isinstance(event, FleetReady))
    assert bridge.shutdown(5)


@pytest.mark.parametrize("calls", [1, 3])
def test_shutdown_may_be_called_more_than_once(calls: int) -> None:
    with bridged(FakeBackend()) as (bridge, _):
        for _ in range(calls):
            assert bridge.shutdown(5)
