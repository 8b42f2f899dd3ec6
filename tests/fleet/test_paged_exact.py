"""Real paged engines in `exact`: whatever happens around a session, its ids are a masked chain's alone.

Invariants 1, 2, 3 and 6 of the design: stages, drafters, depths, neighbours, forks, rollbacks, evictions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio

from fleetchat.cutter.build import build
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.recipe import load
from fleetchat.cutter.store import Store
from fleetchat.fleet.coordinator import Fleet, FleetSession
from fleetchat.fleet.telemetry import Answer
from tests.fakes.chain import Letters, request
from tests.fakes.real_chain import real_fleet
from tests.peer.coordinator import wait_for
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.trio, pytest.mark.slow]

RECIPE = 'title = "Tiny"\n[source]\nkind = "path"\npath = "model"\n'
SYSTEM = tuple(b"the cat sat on the mat, the cat sat on the hat, ")
REQUESTS = tuple(SYSTEM + tuple(text) for text in (b"mat", b"hat", b"and the dog", b"", b"cat sat on the"))
TOKENS = 40
Prompt = tuple[int, ...]


class Tiny:
    """The tiny model built in 1, 2 and 3 stages, and what the masked chain says alone."""

    def __init__(self, folder: Path) -> None:
        write_tiny_model(folder / "model")
        (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")
        self.store = Store(folder / "store")
        recipe = load(folder / "tiny.toml")
        self.builds: dict[int, Manifest] = {
            stages: build(recipe, stages, None, self.store) for stages in (1, 2, 3)
        }
        self._known: dict[tuple[Prompt, float], tuple[int, ...]] = {}

    @asynccontextmanager
    async def fleet(self, stages: int = 2, *, kv: str = "paged", **options: object) -> AsyncIterator[Fleet]:
        async with real_fleet(self.store, self.builds[stages], kv=kv, **options) as fleet:  # type: ignore[arg-type]
            yield fleet

    async def alone(self, prompts: Sequence[Prompt], temperature: float) -> list[tuple[int, ...]]:
        """What the masked chain says to each, with nobody else in it: `TOKENS` ids."""
        if missing := [prompt for prompt in set(prompts) if (prompt, temperature) not in self._known]:
            async with self.fleet(1, kv="masked") as fleet:
                for prompt in missing:
                    session = fleet.new_session()
                    answer = await ask(fleet, session, prompt, temperature)
                    await fleet.close_session(session)
                    self._known[prompt, temperature] = answer.token_ids
        return [self._known[prompt, temperature] for prompt in prompts]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny(tmp_path_factory.mktemp("tiny"))


async def ask(
    fleet: Fleet, session: FleetSession, prompt: Sequence[int], temperature: float, tokens: int = TOKENS
) -> Answer:
    asked = request(prompt, max_tokens=tokens, temperature=temperature, seed=5)
    return await fleet.generate(session, asked, Letters(), on_text=lambda text: None)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("stages", [1, 2, 3])
async def test_paged_and_masked_say_the_same(stages: int, temperature: float, tiny: Tiny) -> None:
    async with tiny.fleet(stages) as fleet:
        answers = [await ask(fleet, fleet.new_session(), prompt, temperature) for prompt in REQUESTS]
        assert [answer.token_ids for answer in answers] == await tiny.alone(REQUESTS, temperature)
        assert fleet.holdings.forks == len(REQUESTS) - 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("depth", [1, 3, 8, None])
async def test_drafts_change_nothing_and_leave_no_dead_cells(
    depth: int | None, temperature: float, tiny: Tiny
) -> None:
    async with tiny.fleet(drafter="ngram", draft_depth=depth, max_draft=8) as fleet:
        session = fleet.new_session()
        for _ in range(2):
            answer = await ask(fleet, session, REQUESTS[0], temperature)
            assert [answer.token_ids] == await tiny.alone(REQUESTS[:1], temperature)
            counted = answer.speculation
            assert counted.cells_dead == (0, 0)
            assert counted.compactions == 0
            assert answer.completion_tokens <= counted.accepted + counted.rounds
            assert counted.accepted <= counted.drafted


@pytest.mark.parametrize("seed", range(6))
async def test_random_mixes_of_sessions(seed: int, tiny: Tiny) -> None:
    """1 to 16 tabs that start, branch, edit, stop and go on in a room for a few of them."""
    random = Random(seed)
    tabs = random.choice([1, 2, 5, 9, 16])
    stages, temperature = random.choice([1, 2, 3]), random.choice([0.0, 0.8])
    drafter, cells = random.choice(["none", "ngram"]), random.choice([512, 768, 8192])
    async with tiny.fleet(
        stages, drafter=drafter, draft_depth=random.choice([2, 5]), kv_cells=cells, context=256
    ) as fleet:
        asked: list[tuple[Prompt, Answer]] = []

        async def talk(own: Random) -> None:
            session, prompt = fleet.new_session(), own.choice(REQUESTS)
            for _ in range(3):
                tokens = own.randint(4, 24)
                answer = await ask(fleet, session, prompt, temperature, tokens)
                asked.append((prompt, answer))
                match own.randrange(4):
                    case 0:  # go on
                        prompt = (*prompt, *answer.token_ids, *own.choice(REQUESTS)[-4:])
                    case 1:  # edit: go back into the prompt
                        prompt = (*prompt[: own.randint(20, len(prompt))], *b" then ")
                    case 2:  # branch in a tab of its own
                        session, prompt = fleet.new_session(), (*prompt, *answer.token_ids[:3])
                    case 3:  # regenerate
                        pass
                prompt = prompt[:200]

        async with trio.open_nursery() as nursery:
            for tab in range(tabs):
                nursery.start_soon(talk, Random(1000 * seed + tab))
        await agrees(fleet)
        if cells == 512 and tabs > 4:
            assert fleet.holdings.evictions > 0
    expected = await tiny.alone([prompt for prompt, _ in asked], temperature)
    for (_, answer), ids in zip(asked, expected, strict=True):
        assert answer.token_ids == ids[: len(answer.token_ids)]


async def agrees(fleet: Fleet) -> None:
    """Every stage holds the lengths that the coordinator counts, and no dead cell."""

    def same() -> bool:
        lengths = {one.state.session: one.state.length for one in fleet.sessions if one.state is not None}
        stats = [stage.stats for stage in fleet.chain.stages]
        return all(
            stat is not None and {one.session: one.live for one in stat.sessions} == lengths for stat in stats
        ) and all(one.dead == 0 for stat in stats if stat for one in stat.sessions)

    await wait_for(same)


async def test_sixteen_sessions_of_two_thousand_tokens_in_room_for_eight(tiny: Tiny) -> None:
    """All finish, evictions are counted, none is wrong."""
    filler = bytes(97 + (7 * index) % 26 for index in range(1980))
    prompts = [bytes([65 + number]) + filler for number in range(16)]
    async with tiny.fleet(2, context=2048, kv_cells=8 * 2048) as fleet:
        answers: dict[int, list[Answer]] = {number: [] for number in range(16)}

        async def talk(number: int) -> None:
            session, prompt = fleet.new_session(), tuple(prompts[number])
            for _ in range(2):
                answer = await ask(fleet, session, prompt, 0.0, 10)
                answers[number].append(answer)
                prompt = (*prompt, *answer.token_ids, 66)

        async with trio.open_nursery() as nursery:
            for number in range(16):
                nursery.start_soon(talk, number)
        assert fleet.holdings.evictions >= 8
    async with tiny.fleet(1, kv="masked", context=2048, kv_cells=4096) as fleet:
        for number in (0, 7, 15):
            session = fleet.new_session()
            first = await ask(fleet, session, prompts[number], 0.0, 10)
            more = (*prompts[number], *first.token_ids, 66)
            second = await ask(fleet, session, more, 0.0, 10)
            await fleet.close_session(session)
            assert [answer.token_ids for answer in answers[number]] == [first.token_ids, second.token_ids]
