"""Real engines in `exact`: whatever drafts, the ids are those of no drafter (invariant 2 of the design)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fleetchat.cutter.build import build
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.recipe import load
from fleetchat.cutter.store import Store
from fleetchat.fleet.coordinator import Fleet
from fleetchat.fleet.draft.interface import Drafter
from fleetchat.fleet.telemetry import Answer
from tests.fakes.chain import Letters, request
from tests.fakes.drafters import RightDrafter, WrongDrafter
from tests.fakes.noisy_model import write_noisy_copy
from tests.fakes.real_chain import real_fleet
from tests.tiny_model import write_tiny_model

pytestmark = pytest.mark.trio

RECIPE = 'title = "Tiny"\n[source]\nkind = "path"\npath = "model"\n'
PROMPT = tuple(b"the cat sat on the mat, the cat sat on the")
LONG_PROMPT = PROMPT * 6
TOKENS = 48


class Tiny:
    """The tiny model: built in 2 and 3 stages, and a noisy copy of it to draft with."""

    def __init__(self, folder: Path) -> None:
        write_tiny_model(folder / "model")
        (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")
        self.model = folder / "model"
        self.noisy = write_noisy_copy(self.model, folder / "noisy", noise=0.03)
        self.store = Store(folder / "store")
        recipe = load(folder / "tiny.toml")
        self.builds: dict[int, Manifest] = {
            stages: build(recipe, stages, None, self.store) for stages in (2, 3)
        }
        self.replies: dict[tuple[tuple[int, ...], float], tuple[int, ...]] = {}

    @asynccontextmanager
    async def fleet(self, stages: int, **options: object) -> AsyncIterator[Fleet]:
        async with real_fleet(self.store, self.builds[stages], **options) as fleet:  # type: ignore[arg-type]
            yield fleet

    async def without_drafts(self, prompt: tuple[int, ...], temperature: float) -> tuple[int, ...]:
        """What the chain says by itself; asked once."""
        if (prompt, temperature) not in self.replies:
            async with self.fleet(2) as fleet:
                answer = await ask(fleet, prompt, temperature)
            self.replies[prompt, temperature] = answer.token_ids
        return self.replies[prompt, temperature]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny(tmp_path_factory.mktemp("tiny"))


async def ask(fleet: Fleet, prompt: tuple[int, ...], temperature: float) -> Answer:
    asked = request(prompt, max_tokens=TOKENS, temperature=temperature, seed=5)
    session = fleet.sessions[0] if fleet.sessions else fleet.new_session()
    return await fleet.generate(session, asked, AnyText(), on_text=lambda text: None)


class AnyText(Letters):
    """Bytes above 127 and special tokens are text like any other here."""


def oracle_drafter(kind: type[RightDrafter], prompt: tuple[int, ...], reply: tuple[int, ...]) -> Drafter:
    """A drafter that knows the reply."""
    known = (*prompt, *reply)

    def token(session: int, position: int) -> int:
        return known[position] if position < len(known) else 0

    if issubclass(kind, WrongDrafter):
        return kind(token, 259)
    return kind(token)


def options_of(name: str, tiny: Tiny, prompt: tuple[int, ...], reply: tuple[int, ...]) -> dict[str, object]:
    """What to open the fleet with."""
    match name:
        case "model":
            return {"drafter": "model", "draft_model": tiny.model}
        case "ngram+noisy":
            return {"drafter": "ngram+model", "draft_model": tiny.noisy}
        case "noisy":
            return {"drafter": "model", "draft_model": tiny.noisy}
        case "right":
            return {"drafter": oracle_drafter(RightDrafter, prompt, reply)}
        case "wrong":
            return {"drafter": oracle_drafter(WrongDrafter, prompt, reply)}
        case _:
            return {"drafter": name}


@pytest.mark.parametrize("prompt", [PROMPT, LONG_PROMPT], ids=["short", "long"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("depth", [1, 3, 8])
@pytest.mark.parametrize("name", ["ngram", "model", "noisy", "ngram+noisy", "right", "wrong"])
async def test_any_drafter_leaves_the_ids_as_they_are(
    name: str, depth: int, temperature: float, prompt: tuple[int, ...], tiny: Tiny
) -> None:
    expected = await tiny.without_drafts(prompt, temperature)
    options = options_of(name, tiny, prompt, expected)
    stages = 2 if depth != 3 else 3
    async with tiny.fleet(stages, draft_depth=depth, max_draft=8, **options) as fleet:
        answer = await ask(fleet, prompt, temperature)
        again = await ask(fleet, prompt, temperature)  # over the cells that the first time left
    assert answer.token_ids == again.token_ids == expected
    counted = answer.speculation
    assert counted.drafted > 0
    assert answer.completion_tokens <= counted.accepted + counted.rounds
    if name in {"wrong", "noisy"}:
        assert counted.drafted > counted.accepted
    if name in {"right", "model"}:
        assert counted.accepted > 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_compaction_in_mid_turn_leaves_the_ids_as_they_are(temperature: float, tiny: Tiny) -> None:
    """A small context makes the reservation small: wrong drafts fill it with dead cells again and again."""
    expected = await tiny.without_drafts(PROMPT, temperature)
    drafter = oracle_drafter(WrongDrafter, PROMPT, expected)
    async with tiny.fleet(3, drafter=drafter, draft_depth=8, max_draft=8, context=96) as fleet:
        answer = await ask(fleet, PROMPT, temperature)
        assert fleet.sessions[0].state is not None
        assert fleet.sessions[0].state.physical <= fleet.reservation
    assert answer.token_ids == expected
    assert answer.speculation.compactions >= 1
