"""A spare that has no shard yet is sent it when it takes a place, and the answer goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat.cutter.received import PeerStore
from fleetchat.engine.interface import StageEngine
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.speculation import Speculation
from fleetchat.peer.loading import EngineFactory, EngineRequest
from tests.fakes.builds import write_build
from tests.fakes.chain import Letters, request
from tests.fakes.engine import FakeEngine
from tests.fakes.mortal import HASTY, mortal_over
from tests.peer.builders import BUILD

pytestmark = pytest.mark.trio


async def test_it_gets_its_shard_in_mid_answer(tmp_path: Path) -> None:
    store, made = write_build(tmp_path / "chat")

    def factory(stage: int, number: int) -> EngineFactory:
        def create(asked: EngineRequest) -> StageEngine:
            return FakeEngine(stage, 2)

        return create

    options = FleetOptions(
        manifest=made,
        store_root=store.root,
        peers=(PeerSpec(None),) * 2,
        precision="fast",
        kv="masked",
        context=64,
        connect_deadline=1.0,
        deadlines=HASTY,
    )
    speculation = Speculation(NoDrafter(), depth=None, max_draft=8, vocabulary=made.vocabulary)
    spare = tmp_path / "spare"
    async with mortal_over(
        options,
        PeerStore(store.root),
        factory,
        speculation,
        embedded=False,
        spare_of=1,
        spare_store=PeerStore(spare),
    ) as mortal:
        undisturbed = await mortal.fleet.generate(
            mortal.fleet.new_session(), request([1, 2], max_tokens=30), Letters(), on_text=lambda text: None
        )
        shown = 0

        def strike(text: str) -> None:
            nonlocal shown
            shown += 1
            if shown == 5:
                mortal.doors[1].closed = True
                mortal.doors[1].cut()

        answer = await mortal.fleet.generate(
            mortal.fleet.new_session(), request([1, 2], max_tokens=30), Letters(), on_text=strike
        )
        assert [recovery.loss.stage for recovery in mortal.fleet.recoveries] == [1]
    assert answer.error is None
    assert len(answer.token_ids) == len(undisturbed.token_ids) == 30
    assert PeerStore(spare).find(BUILD, 1) == made
    assert PeerStore(spare).find(BUILD, 0) is None
