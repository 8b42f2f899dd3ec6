"""A fleet over real peers with fake paged engines, whose replies depend on every id before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fleetchat.fleet.coordinator import Fleet, FleetSession
from fleetchat.fleet.draft.interface import Drafter
from fleetchat.fleet.telemetry import Answer
from tests.fakes.chain import Letters, fleet_over_engines, request
from tests.fakes.paged_engine import FakePagedEngine, history_reply
from tests.peer.builders import manifest
from tests.peer.coordinator import wait_for


@dataclass
class Paged:
    fleet: Fleet
    engines: list[FakePagedEngine]

    async def ask(
        self, session: FleetSession, prompt: Sequence[int], tokens: int = 6, *, right: bool = True
    ) -> Answer:
        answer = await self.fleet.generate(
            session, request(prompt, max_tokens=tokens), Letters(), on_text=lambda text: None
        )
        if right:
            assert list(answer.token_ids) == history_reply(prompt, tokens), answer
        return answer

    async def settled(self) -> None:
        """All stages have carried out what was sent, and hold what the coordinator counts.

        A stage need not have heard of a session that holds nothing.
        """
        room = self.fleet.room
        assert room is not None
        expected = {
            one.state.session: one.state.held for one in self.fleet.sessions if one.state and one.state.held
        }

        def same() -> bool:
            return all(
                {key.session: engine.content(key) for key in engine.sessions() if engine.length(key)}
                == expected
                for engine in self.engines
            )

        await wait_for(same)
        for engine in self.engines:
            assert engine._blocks.held == room.blocks.held
            assert engine.most_blocks <= room.capacity


@asynccontextmanager
async def paged_fleet(
    stages: int = 2,
    *,
    cells: int = 1024,
    context: int = 64,
    drafter: Drafter | None = None,
    depth: int | None = None,
) -> AsyncIterator[Paged]:
    engines = [FakePagedEngine(stage, stages, cells=cells) for stage in range(stages)]
    async with fleet_over_engines(
        engines,
        manifest(stages, context=context),
        kv="paged",
        context=context,
        kv_cells=cells,
        drafter=drafter,
        depth=depth,
    ) as (fleet, _):
        yield Paged(fleet, engines)
