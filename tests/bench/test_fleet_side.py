"""The decoder that takes the times."""

from __future__ import annotations

import pytest

from fleetchat.bench.fleet_side import TimedDecoder, require_success
from fleetchat.errors import FleetError
from fleetchat.fleet.telemetry import Answer, FinishReason


class Letters:
    def push(self, token_id: int) -> str:
        return chr(token_id)

    def finish(self) -> str:
        return "."


def test_text_passes_and_every_token_gets_a_time() -> None:
    decoder = TimedDecoder(Letters())
    assert [decoder.push(token) for token in (97, 98)] == ["a", "b"]
    assert decoder.finish() == "."
    assert decoder.token_ids == [97, 98]
    assert len(decoder.times) == 2
    assert decoder.times == sorted(decoder.times)


def test_a_loop_is_told_once_it_is_complete() -> None:
    told: list[int] = []
    decoder = TimedDecoder(Letters(), lambda: told.append(len(decoder.token_ids)))
    for token in [*range(12), *range(12)]:
        decoder.push(token)
    assert told == [24]


def test_a_failed_reply_is_no_measurement() -> None:
    answer = Answer("", (), FinishReason.ERROR, 0, 1, 0, 0.0, 0.0, error=("a stage was lost", "look at it"))
    with pytest.raises(FleetError, match="a stage was lost") as failed:
        require_success(answer)
    assert failed.value.hint == "look at it"
