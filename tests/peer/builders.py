"""Frames for the tests of the peer, with everything that a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleetchat.cutter.manifest import CUTTER_FORMAT, Manifest, SelfCheck, StageEntry, StoredFile
from fleetchat.ids import Address, BatchSequence, BuildKey, ChainId, Epoch, SessionId, StageIndex
from fleetchat.peer.queue import QueuedBatch
from fleetchat.wire.frames import Draw, Forward, Open, Slice, SliceStatus, WireDtype
from tests.fakes.engine import FAKE_HIDDEN, FAKE_VOCABULARY

CHAIN = ChainId("c" * 32)
BUILD = BuildKey("b" * 64)
GREEDY = Draw(temperature=0.0, top_p=1.0, top_k=0, penalty=1.0, seed=1, reply_start=0)
_FILE = StoredFile("x", 1, "0" * 64)


def piece(
    session: int,
    first: int,
    token_ids: Sequence[int],
    *,
    rollback: int = 0,
    drafts: int = 0,
    draw: Draw | None = GREEDY,
    status: SliceStatus = SliceStatus.OK,
    fault: tuple[str, str] = ("", ""),
) -> Slice:
    ids = np.array(token_ids, dtype=np.int32)
    return Slice(SessionId(session), first, rollback, ids, drafts, draw, status, *fault)


def batch(*slices: Slice, sequence: int = 0, epoch: int = 1) -> Forward:
    return Forward(Epoch(epoch), BatchSequence(sequence), slices)


def queued(frame: Forward, *, skipped: Sequence[int] = (), arrived: float = 0.0) -> QueuedBatch:
    return QueuedBatch(frame, 100, arrived, {SessionId(session) for session in skipped})


def manifest(stages: int = 1, *, build_key: BuildKey = BUILD, context: int = 64) -> Manifest:
    """A build whose shards the fake engine can stand for: one layer a stage."""
    entries = tuple(
        StageEntry(index, index, index, _FILE, _FILE, ("inputs_embeds",), ((1, 4), (1, 4)), 1, 1, 1)
        for index in range(stages)
    )
    return Manifest(
        format=CUTTER_FORMAT,
        build_key=build_key,
        recipe="fake",
        model="Fake",
        source="0" * 64,
        converter="none 1",
        layers=stages,
        hidden=FAKE_HIDDEN,
        vocabulary=FAKE_VOCABULARY,
        context=context,
        window=0,
        stages=entries,
        tokenizer=_FILE,
        template=_FILE,
        bos_id=None,
        stop_ids=(0,),
        weight_error=0.0,
        self_check=SelfCheck(0.0, 0.0, 0.0, True, 1.0),
        created="2026-01-01T00:00:00Z",
    )


def opening(
    stage: int = 0, stages: int = 1, *, next_address: Address | None = None, **changes: object
) -> Open:
    """The OPEN that fits `manifest(stages)`."""
    if next_address is None and stage < stages - 1:
        next_address = Address("127.0.0.1", 9)
    open_ = Open(
        chain=CHAIN,
        epoch=Epoch(1),
        build_key=BUILD,
        stage=StageIndex(stage),
        stages=stages,
        first_layer=stage,
        last_layer=stage,
        vocabulary=FAKE_VOCABULARY,
        hidden=FAKE_HIDDEN,
        wire_dtype=WireDtype.F16,
        precision="fast",
        engine="masked",
        next_address=next_address,
        cells_wanted=1000,
        max_rows=64,
        max_slices=8,
    )
    return replace(open_, **changes)  # type: ignore[arg-type]
