"""Real engines in `exact`: a stage is lost in the middle, and the ids are those of an undisturbed run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from fleetchat.cutter.build import build
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.received import PeerStore
from fleetchat.cutter.recipe import load
from fleetchat.cutter.store import Store
from fleetchat.engine.interface import StageEngine
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.speculation import open_speculation
from fleetchat.peer.engines import create_engine
from fleetchat.peer.loading import EngineFactory, EngineRequest
from tests.fakes.chain import Letters, request
from tests.fakes.mortal import HASTY, Mortal, mortal_over
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.trio, pytest.mark.slow]

RECIPE = 'title = "Tiny"\n[source]\nkind = "path"\npath = "model"\n'
TEXT = b"the cat sat on the mat, the cat sat on the hat, "
PROMPTS = tuple(tuple(TEXT * (1 + number) + b"the cat sat"[number:]) for number in range(4))
TOKENS = 32
Ids = list[tuple[int, ...]]


class Tiny:
    """The tiny model in 2 stages, and what an undisturbed masked chain says without drafts."""

    def __init__(self, folder: Path) -> None:
        write_tiny_model(folder / "model")
        (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")
        self.store = Store(folder / "store")
        self.build: Manifest = build(load(folder / "tiny.toml"), 2, None, self.store)
        self.undisturbed: Ids = []

    @asynccontextmanager
    async def fleet(
        self, kv: str, drafter: str, on_start: Callable[[int], None] = lambda stage: None
    ) -> AsyncIterator[Mortal]:
        """`on_start` is called on the inference thread before each first batch of a stage."""
        options = FleetOptions(
            manifest=self.build,
            store_root=self.store.root,
            peers=(PeerSpec(None),) * 2,
            precision="exact",
            kv=kv,
            context=512,
            kv_cells=8192,
            drafter=drafter,
            draft_depth=None if drafter == "none" else 3,
            connect_deadline=5.0,
            deadlines=HASTY,
        )

        def factory(stage: int, number: int) -> EngineFactory:
            def create(asked: EngineRequest) -> StageEngine:
                engine = create_engine(asked)
                run = engine.run
                if number == 0:

                    def first_run(slices):  # type: ignore[no-untyped-def]
                        engine.run = run  # type: ignore[method-assign]
                        on_start(stage)
                        return run(slices)

                    engine.run = first_run  # type: ignore[method-assign]
                return engine

            return create

        speculation = await open_speculation(options)
        async with mortal_over(options, PeerStore(self.store.root), factory, speculation) as mortal:
            yield mortal

    async def expected(self) -> Ids:
        if not self.undisturbed:
            async with self.fleet("masked", "none") as mortal:
                self.undisturbed = await ask_all(mortal)
                assert mortal.fleet.snapshot().epoch == 1
        return self.undisturbed


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny(tmp_path_factory.mktemp("tiny"))


async def ask_all(mortal: Mortal, on_text: Callable[[str], None] = lambda text: None) -> Ids:
    """Four sessions at once, at temperature 0.8."""
    answers: dict[int, tuple[int, ...]] = {}

    async def one(number: int) -> None:
        asked = request(PROMPTS[number], max_tokens=TOKENS, temperature=0.8, seed=5 + number)
        session = mortal.fleet.new_session()
        answer = await mortal.fleet.generate(session, asked, Letters(), on_text=on_text)
        assert answer.error is None
        answers[number] = answer.token_ids

    async with trio.open_nursery() as nursery:
        for number in range(len(PROMPTS)):
            nursery.start_soon(one, number)
    return [answers[number] for number in range(len(PROMPTS))]


@pytest.mark.parametrize("drafter", ["none", "ngram"])
@pytest.mark.parametrize("kv", ["masked", "paged"])
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("fault", ["cut", "freeze"])
async def test_a_fault_in_decode_leaves_the_ids_as_they_are(
    fault: str, stage: int, kv: str, drafter: str, tiny: Tiny
) -> None:
    expected = await tiny.expected()
    async with tiny.fleet(kv, drafter) as mortal:
        shown = 0

        def strike(text: str) -> None:
            nonlocal shown
            shown += 1
            if shown == 40:
                getattr(mortal.doors[stage], fault)()

        answers = await ask_all(mortal, strike)
        recoveries = mortal.fleet.recoveries
    assert answers == expected
    assert [recovery.loss.stage for recovery in recoveries] == [stage]


@pytest.mark.parametrize("kv", ["masked", "paged"])
@pytest.mark.parametrize(("fault", "stage"), [("cut", 0), ("freeze", 1)])
async def test_a_fault_in_prefill_leaves_the_ids_as_they_are(
    fault: str, stage: int, kv: str, tiny: Tiny
) -> None:
    expected = await tiny.expected()
    token = trio.lowlevel.current_trio_token()
    opened: list[Mortal] = []

    def strike(started: int) -> None:
        if started == stage and opened:
            trio.from_thread.run_sync(getattr(opened[0].doors[stage], fault), trio_token=token)

    async with tiny.fleet(kv, "ngram", strike) as mortal:
        opened.append(mortal)
        answers = await ask_all(mortal)
        recoveries = mortal.fleet.recoveries
    assert answers == expected
    assert [recovery.loss.stage for recovery in recoveries] == [stage]
