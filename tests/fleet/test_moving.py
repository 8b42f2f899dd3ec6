"""A fleet that serves moves to other peers or another cut: nothing of an answer is lost or doubled."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from fleetchat.engine.interface import StageEngine
from fleetchat.errors import CellsRefused, EngineRefused, FleetError, PeerLost, PeerUnreachable
from fleetchat.fleet import epochs
from fleetchat.fleet.coordinator import Fleet, FleetSession
from fleetchat.fleet.event_log import EventKind
from fleetchat.fleet.telemetry import Answer
from fleetchat.ids import Address
from fleetchat.peer.loading import EngineRequest
from tests.fakes.chain import Letters, request
from tests.fakes.engine import FakeEngine, Mischief, by_position, reply
from tests.fakes.standing_peers import MakeEngine, Standing, fake_engine, nothing_to_bring, standing_fleet
from tests.peer.coordinator import wait_for

pytestmark = pytest.mark.trio

PROMPT = [5, 6, 7]
TOKENS = 120
TEXT = "".join(chr(token) for token in reply(0, len(PROMPT), TOKENS, by_position))


@pytest.fixture(autouse=True)
def _no_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "provide_shards", nothing_to_bring)


async def ask(
    fleet: Fleet, on_text: Callable[[str], None] = lambda text: None, session: FleetSession | None = None
) -> Answer:
    asked = request(PROMPT, max_tokens=TOKENS)
    return await fleet.generate(session or fleet.new_session(), asked, Letters(), on_text=on_text)


class Hold:
    """Engines of a peer, of which the first one waits in the middle of the answers until it is released."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self.release = threading.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._used = False

    def make(self, asked: EngineRequest) -> StageEngine:
        engine = fake_engine(asked)
        if not self._used:
            self._used = True
            engine.mischief = Mischief(before_run=self._wait)
        return engine

    def _wait(self, number: int) -> None:
        if number == 60:
            self._token.run_sync_soon(self.reached.set)
            assert self.release.wait(60)


@asynccontextmanager
async def held_fleet(
    names: str, others: str = "", engines: Mapping[str, MakeEngine] | None = None
) -> AsyncIterator[tuple[Fleet, Standing, Hold]]:
    """`a` serves in it, and holds the answers up."""
    hold = Hold()
    try:
        async with standing_fleet(names, others, {"a": hold.make, **(engines or {})}) as (fleet, standing):
            yield fleet, standing, hold
    finally:
        hold.release.set()


async def ask_and_move(
    fleet: Fleet, hold: Hold, move: Callable[[], Awaitable[None]], sessions: int = 3
) -> list[Answer]:
    """Several answers; `move` is carried out while they are held up in their middle."""
    answers: list[Answer] = []

    async def one() -> None:
        answers.append(await ask(fleet))

    async with trio.open_nursery() as nursery:
        for _ in range(sessions):
            nursery.start_soon(one)
        await hold.reached.wait()
        await move()
        hold.release.set()
    return answers


@pytest.mark.parametrize(
    ("before", "after"), [("ab", "abc"), ("abc", "ab"), ("ab", "a"), ("ab", "ba"), ("ab", "cb"), ("ab", "c")]
)
async def test_answers_go_on_over_a_move(before: str, after: str) -> None:
    """A peer more, a peer less, the same in another order, a peer exchanged, another machine alone."""
    async with held_fleet(before, "abc".replace(before, "")) as (fleet, standing, hold):
        answers = await ask_and_move(fleet, hold, lambda: fleet.move_to(standing.options(after)))
        snapshot = fleet.snapshot()
        later = await ask(fleet)
    assert [answer.text for answer in answers] == [TEXT] * 3
    assert later.text == TEXT
    assert [stage.address for stage in snapshot.stages] == [str(standing.addresses[name]) for name in after]
    assert (snapshot.epoch, snapshot.moves, snapshot.recoveries, snapshot.moving) == (2, 1, 0, "")
    kinds = [event.kind for event in snapshot.events]
    assert kinds == [EventKind.MOVING, EventKind.MOVED]
    assert [[entry["cause"] for entry in answer.recoveries] for answer in answers] == [["moved"]] * 3


async def test_an_answer_tells_that_the_fleet_moved_in_its_middle() -> None:
    async with held_fleet("ab", "c") as (fleet, standing, hold):
        [answer] = await ask_and_move(fleet, hold, lambda: fleet.move_to(standing.options("abc")), 1)
    [entry] = answer.recoveries
    assert (entry["stage"], entry["cause"]) == (None, "moved")
    assert answer.text == TEXT
    assert answer.notes == (
        "the fleet moved to 3 stages (layers 0-0, 1-1, 2-2) in the middle of this answer",
    )


class SlowLoading:
    """Makes an engine when `go_on` is set. Made inside trio; called on an inference thread."""

    def __init__(self) -> None:
        self.loading, self.go_on = trio.Event(), threading.Event()
        self._token = trio.lowlevel.current_trio_token()

    def __call__(self, asked: EngineRequest) -> StageEngine:
        self._token.run_sync_soon(self.loading.set)
        assert self.go_on.wait(60)
        return fake_engine(asked)


async def test_the_old_chain_serves_until_the_new_one_is_loaded() -> None:
    """Answers go on while an engine of the new chain takes its time."""
    slow = SlowLoading()
    async with standing_fleet("ab", "c", {"c": slow}) as (fleet, standing):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.move_to, standing.options("abc"))
            await slow.loading.wait()
            assert (await ask(fleet)).text == TEXT
            snapshot = fleet.snapshot()
            assert (snapshot.epoch, snapshot.moves) == (1, 0)
            assert snapshot.moving != ""
            slow.go_on.set()
        assert fleet.snapshot().epoch == 2
        assert (await ask(fleet)).text == TEXT


async def test_a_new_chain_that_cannot_be_opened_changes_nothing() -> None:
    def broken(asked: EngineRequest) -> StageEngine:
        raise RuntimeError("no such instruction")

    async with held_fleet("ab", "c", {"c": broken}) as (fleet, standing, hold):

        async def move() -> None:
            with pytest.raises(EngineRefused, match="no such instruction"):
                await fleet.move_to(standing.options("abc"))

        answers = await ask_and_move(fleet, hold, move)
        snapshot = fleet.snapshot()
    assert [answer.text for answer in answers] == [TEXT] * 3
    assert [answer.recoveries for answer in answers] == [()] * 3
    assert (snapshot.epoch, snapshot.moves, len(snapshot.stages)) == (1, 0, 2)


async def test_a_peer_that_does_not_answer_changes_nothing() -> None:
    async with standing_fleet("ab") as (fleet, standing):
        standing.addresses["c"] = Address("127.0.0.1", 1)
        with pytest.raises(PeerUnreachable):
            await fleet.move_to(standing.options("abc"))
        assert (await ask(fleet)).text == TEXT
        assert fleet.snapshot().epoch == 1


async def test_of_a_peer_that_does_not_answer_the_file_and_the_way_out_are_told(tmp_path: Path) -> None:
    """Whether nobody listens, or somebody who says nothing that a peer says."""
    file = tmp_path / "fleet.toml"

    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async with standing_fleet("ab") as (fleet, standing), trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), hang_up, 0)
        for port in (1, listener.socket.getsockname()[1]):
            standing.addresses["c"] = dead = Address("127.0.0.1", port)
            with pytest.raises((PeerUnreachable, PeerLost)) as refused:
                await fleet.move_to(replace(standing.options("abc"), named_in=file))
            assert refused.value.message.startswith("stage 2: ")
            assert f"take it out of {file}: `fleetchat fleet remove {dead} --fleet {file}`" in str(
                refused.value.hint
            )
        nursery.cancel_scope.cancel()


async def test_a_move_that_is_called_off_changes_nothing() -> None:
    slow = SlowLoading()
    async with standing_fleet("ab", "c", {"c": slow}) as (fleet, standing):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.move_to, standing.options("abc"))
            await slow.loading.wait()
            nursery.cancel_scope.cancel()
        slow.go_on.set()
        assert fleet.moving == ""
        assert (await ask(fleet)).text == TEXT
        assert fleet.snapshot().epoch == 1
        await fleet.move_to(standing.options("abc"))
        assert fleet.snapshot().epoch == 2


def small(cells: int) -> Callable[[EngineRequest], StageEngine]:
    """Engines that share a budget of cells between the chains of a stage."""

    def make(asked: EngineRequest) -> StageEngine:
        return FakeEngine(
            asked.entry.index, len(asked.manifest.stages), oracle=by_position, cells=cells, name=asked.engine
        )

    return make


async def test_without_room_for_both_the_old_chain_is_left_first() -> None:
    """`b` serves stage 1 of the same cut in both chains, and has cells for one of them."""
    async with held_fleet("ab", "c", {"b": small(3000)}) as (fleet, standing, hold):
        answers = await ask_and_move(fleet, hold, lambda: fleet.move_to(standing.options("cb")))
        snapshot = fleet.snapshot()
    assert [answer.text for answer in answers] == [TEXT] * 3
    assert snapshot.stages[0].address == str(standing.addresses["c"])
    assert (snapshot.moves, snapshot.recoveries) == (1, 0)
    assert any("is left first" in event.text for event in snapshot.events)


async def test_what_was_left_first_serves_again_when_the_new_chain_fails() -> None:
    """`b` lacks cells beside the old chain; without it `c` breaks, and the old one is opened again."""

    def breaks(asked: EngineRequest) -> StageEngine:
        raise RuntimeError("no such instruction")

    async with held_fleet("ab", "c", {"b": small(3000), "c": breaks}) as (fleet, standing, hold):
        fleet_options = standing.options("cb")
        refused: list[FleetError] = []

        async def move() -> None:
            try:
                await fleet.move_to(fleet_options)
            except FleetError as refusal:
                refused.append(refusal)

        answers = await ask_and_move(fleet, hold, move)
        snapshot = fleet.snapshot()
    assert [answer.text for answer in answers] == [TEXT] * 3
    assert len(refused) == 1
    assert snapshot.stages[0].address == str(standing.addresses["a"])


async def test_a_chain_without_room_for_what_is_under_way_is_not_taken() -> None:
    async with held_fleet("ab", "c", {"c": small(600)}) as (fleet, standing, hold):

        async def move() -> None:
            with pytest.raises(CellsRefused, match="3 replies are under way"):
                await fleet.move_to(standing.options("c"))

        answers = await ask_and_move(fleet, hold, move)
        assert [answer.text for answer in answers] == [TEXT] * 3
        assert fleet.snapshot().epoch == 1
        await fleet.move_to(standing.options("c"))
        assert (await ask(fleet)).text == TEXT


async def test_a_spare_that_was_named_later_takes_a_place() -> None:
    async with standing_fleet("ab", "c") as (fleet, standing):
        await fleet.move_to(standing.options("ab", spares="c"))
        assert fleet.snapshot().moves == 0  # nothing but the spare is new
        shown = 0

        def strike(text: str) -> None:
            nonlocal shown
            shown += 1
            if shown == 20:
                standing.end("b")

        answer = await ask(fleet, strike)
        snapshot = fleet.snapshot()
    assert answer.text == TEXT
    assert snapshot.recoveries == 1
    assert snapshot.stages[1].address == str(standing.addresses["c"])


async def test_after_a_move_losses_are_overcome_on_the_new_chain() -> None:
    async with standing_fleet("ab", "cd") as (fleet, standing):
        await fleet.move_to(standing.options("abc", spares="d"))
        shown = 0

        def strike(text: str) -> None:
            nonlocal shown
            shown += 1
            if shown == 20:
                standing.end("c")

        answer = await ask(fleet, strike)
        snapshot = fleet.snapshot()
    assert answer.text == TEXT
    assert (snapshot.epoch, snapshot.moves, snapshot.recoveries) == (3, 1, 1)
    assert snapshot.stages[2].address == str(standing.addresses["d"])


async def test_a_peer_that_is_gone_is_taken_out() -> None:
    """Its loss is not waited out: the move takes the place of the recovery."""
    async with held_fleet("abc") as (fleet, standing, hold):

        async def move() -> None:
            standing.end("c")
            await wait_for(lambda: fleet.trouble != "")
            await fleet.move_to(standing.options("ab"))

        answers = await ask_and_move(fleet, hold, move)
        snapshot = fleet.snapshot()
    assert [answer.text for answer in answers] == [TEXT] * 3
    assert (len(snapshot.stages), snapshot.moves, snapshot.trouble) == (2, 1, "")


async def test_moves_back_and_forth_cost_no_token() -> None:
    async with held_fleet("ab", "c") as (fleet, standing, hold):

        async def move() -> None:
            for names in ("abc", "ab", "c", "ab"):
                await fleet.move_to(standing.options(names))

        answers = await ask_and_move(fleet, hold, move)
    assert [answer.text for answer in answers] == [TEXT] * 3
    assert fleet.moves == 4
