"""What a chain believes of the RESULTs that come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from fleetchat.errors import PeerLost, RemoteProtocolError
from fleetchat.fleet.chain import Chain, Stage, check_result
from fleetchat.fleet.trouble import Cause
from fleetchat.fleet.watching import progress_words
from fleetchat.ids import Address, BatchSequence, Epoch, SessionId
from fleetchat.wire.frames import Progress, Result, ResultStatus, SliceResult, StageTiming
from tests.peer.builders import piece

ASKED = (piece(1, 0, [1, 2, 3]), piece(2, 4, [5, 6], drafts=1), piece(3, 0, [7], draw=None))
HONEST = Result(
    Epoch(1),
    BatchSequence(0),
    (
        SliceResult(SessionId(1), ResultStatus.DRAWN, 0, 9),
        SliceResult(SessionId(2), ResultStatus.DRAWN, 1, 9),
        SliceResult(SessionId(3), ResultStatus.NO_DRAW),
    ),
    (StageTiming(1, 1, 1, ((1, 0),) * 3),) * 2,
)


def changed(index: int, result: SliceResult) -> Result:
    results = list(HONEST.results)
    results[index] = result
    return replace(HONEST, results=tuple(results))


def test_an_honest_result_is_believed() -> None:
    check_result(HONEST, ASKED, stages=2, vocabulary=10)
    check_result(changed(0, SliceResult(SessionId(1), ResultStatus.SKIPPED)), ASKED, stages=2, vocabulary=10)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (replace(HONEST, timings=HONEST.timings[:1]), "3 slices and 1 stages came for a batch of 3 slices"),
        (changed(0, SliceResult(SessionId(8), ResultStatus.DRAWN, 0, 9)), "is of session 8, not 1"),
        (
            changed(0, SliceResult(SessionId(1), ResultStatus.DRAWN, 0, 10)),
            "token 10, the ids end at 9",
        ),
        (changed(1, SliceResult(SessionId(2), ResultStatus.DRAWN, 2, 9)), "accepts 2 of 1 drafts"),
        (changed(1, SliceResult(SessionId(2), ResultStatus.NO_DRAW)), "does not where it was"),
        (changed(2, SliceResult(SessionId(3), ResultStatus.DRAWN, 0, 9)), "where nothing was asked for"),
    ],
)
def test_a_result_that_cannot_be_is_refused(result: Result, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        check_result(result, ASKED, stages=2, vocabulary=10)


def two_stages() -> list[Stage]:
    return [Stage(index, "", Address("127.0.0.1", 4711 + index), index, index) for index in range(2)]


@pytest.mark.trio
async def test_results_of_nobody_are_dropped_and_counted() -> None:
    chain = Chain(two_stages())
    chain.deliver(HONEST)
    chain.deliver(replace(HONEST, epoch=Epoch(7)))
    assert chain.dropped == 2
    following = Chain(two_stages(), before=chain)
    assert (following.identity, following.epoch, following.dropped) == (chain.identity, 2, 2)


@pytest.mark.trio
async def test_the_first_loss_is_the_cause(autojump_clock: trio.testing.MockClock) -> None:
    chain = Chain(two_stages())
    began = chain.suspect()
    await trio.sleep(0.25)
    chain.lose(chain.stages[1], PeerLost("gone"), Cause.DIED)
    chain.lose(chain.stages[0], PeerLost("gone as well"), Cause.LINK)
    assert chain.loss is not None
    assert (chain.loss.stage, chain.loss.address, chain.loss.cause) == (1, "127.0.0.1:4712", Cause.DIED)
    assert (chain.loss.began, round(chain.loss.noticed - began, 6)) == (began, 0.25)
    assert [stage.state for stage in chain.stages] == ["connecting", "lost"]
    with pytest.raises(PeerLost, match=r"^gone$"):
        chain.check()


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress("checking the shard", 0, 2), "checking the shard"),
        (Progress("loading the shard", 2, 2), "loading the shard"),
        (Progress("receiving the shard, MB", 12, 1500), "receiving the shard, MB 12 of 1,500"),
    ],
)
def test_what_a_stage_does_is_said_without_numbers_that_tell_nothing(progress: Progress, words: str) -> None:
    assert progress_words(progress) == words
