"""Two stages of the tiny model over sockets, on the engine that OpenVINO runs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from fleetchat.cutter.manifest import Manifest
from fleetchat.ids import Address, Epoch, SessionId
from fleetchat.peer.engines import create_engine
from fleetchat.peer.process import bound_address
from fleetchat.peer.serve import PeerOptions, serve
from fleetchat.wire.frames import Cancel, Compact, Error, Fork, WireDtype
from tests.peer.builders import manifest, opening, piece
from tests.peer.coordinator import (
    KEY,
    Coordinator,
    FakeStore,
    closing_links,
    control,
    open_chain,
    until,
)
from tests.tiny_model import TinyShape, write_tiny_stage

pytestmark = [pytest.mark.trio, pytest.mark.slow]
SHAPE = TinyShape()
PROMPT = [ord(letter) for letter in "the same text"]


class TinyStore(FakeStore):
    """Builds of the tiny model, written when they are asked for."""

    folder: Path

    def stage_xml(self, manifest: Manifest, index: int) -> Path:
        entry = manifest.stages[index]
        xml = self.folder / f"{entry.first_layer}-{entry.last_layer}.xml"
        return xml if xml.exists() else write_tiny_stage(xml, entry.first_layer, entry.last_layer)


def tiny_manifest(stages: int) -> Manifest:
    """The tiny model's four layers over 1 or 2 stages."""
    fake = manifest(stages, context=256)
    each = SHAPE.layers // stages
    head = (SHAPE.kv_heads, SHAPE.head_size)
    entries = tuple(
        replace(
            entry,
            first_layer=each * index,
            last_layer=each * (index + 1) - 1,
            kv_shapes=(head,) * (2 * each),
            attention_layers=each,
            fused_layers=each,
        )
        for index, entry in enumerate(fake.stages)
    )
    return replace(
        fake, stages=entries, hidden=SHAPE.hidden, vocabulary=SHAPE.vocabulary, layers=SHAPE.layers
    )


async def real_peers(stack: AsyncExitStack, folder: Path, stages: int) -> list[Address]:
    """One peer a stage; gone when the stack unwinds."""
    await stack.enter_async_context(closing_links())
    nursery = await stack.enter_async_context(trio.open_nursery())
    stack.callback(nursery.cancel_scope.cancel)
    addresses = []
    for _ in range(stages):
        store = TinyStore([tiny_manifest(stages)])
        store.folder = folder
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        options = PeerOptions(key=KEY, threads=1, cells=4096)
        nursery.start_soon(partial(serve, listeners, options, store=store, engine_factory=create_engine))
        addresses.append(bound_address(listeners[0]))
    return addresses


async def chain_over(addresses: list[Address], engine: str = "masked") -> Coordinator:
    entries = tiny_manifest(len(addresses)).stages
    opens = [
        opening(
            index,
            len(addresses),
            next_address=addresses[index + 1] if index + 1 < len(addresses) else None,
            precision="exact",
            wire_dtype=WireDtype.F32,
            engine=engine,
            hidden=SHAPE.hidden,
            vocabulary=SHAPE.vocabulary,
            first_layer=entry.first_layer,
            last_layer=entry.last_layer,
        )
        for index, entry in enumerate(entries)
    ]
    return await open_chain(addresses, opens=opens)


async def greedy(chain: Coordinator, session: int, tokens: int) -> list[int]:
    result = await chain.round(piece(session, 0, PROMPT))
    reply = [result.results[0].token]
    while len(reply) < tokens:
        first = len(PROMPT) + len(reply) - 1
        result = await chain.round(piece(session, first, [reply[-1]]))
        reply.append(result.results[0].token)
    return reply


async def test_two_peers_answer_as_one_does_with_rollback_cancel_and_compaction(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        alone = await chain_over(await real_peers(stack, tmp_path, 1))
        expected = await greedy(alone, 1, 12)
        pair = await chain_over(await real_peers(stack, tmp_path, 2))
        assert await greedy(pair, 1, 12) == expected

        await pair.round(piece(2, 0, PROMPT))
        first = len(PROMPT)
        wrong = (expected[2] + 1) % 256
        result = await pair.round(piece(2, first, [expected[0], expected[1], wrong, 7], drafts=3))
        assert (result.results[0].accepted, result.results[0].token) == (1, expected[2])
        result = await pair.round(piece(2, first + 2, [expected[2]], rollback=2))
        assert result.results[0].token == expected[3]
        assert [timing.cells for timing in result.timings] == [((first + 3, 2),)] * 2

        await pair.upstream.send(Cancel(Epoch(1), SessionId(2), first))
        await pair.upstream.send(Compact(Epoch(1), SessionId(2)))
        result = await pair.round(piece(2, first, expected[:3]))
        assert result.results[0].token == expected[3]
        assert [timing.cells for timing in result.timings] == [((first + 3, 0),)] * 2


async def test_two_paged_peers_answer_as_one_masked_does_and_carry_out_a_fork(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        masked = await chain_over(await real_peers(stack, tmp_path, 1))
        expected = await greedy(masked, 1, 12)
        pair = await chain_over(await real_peers(stack, tmp_path, 2), "paged")
        assert all(
            (ready.can_fork, ready.block_size, ready.cells) == (True, 32, 1024) for ready in pair.ready
        )
        assert await greedy(pair, 1, 12) == expected

        first = len(PROMPT)
        await pair.upstream.send(Fork(Epoch(1), SessionId(2), SessionId(1), first))
        wrong = (expected[2] + 1) % 256
        verified = await pair.round(piece(2, first, [expected[0], expected[1], wrong, 7], drafts=3))
        assert (verified.results[0].accepted, verified.results[0].token) == (1, expected[2])
        result = await pair.round(
            piece(2, first + 2, [expected[2]], rollback=2), piece(1, first, expected[:4], rollback=11)
        )
        assert [one.token for one in result.results] == [expected[3], expected[4]]
        assert [timing.cells for timing in result.timings] == [((first + 3, 0), (first + 4, 0))] * 2


async def test_an_engine_that_fails_its_self_check_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetchat.peer.engines.self_check", lambda *_, **__: "rollback: wrong")
    async with AsyncExitStack() as stack:
        (address,) = await real_peers(stack, tmp_path, 1)
        link = await control(address)
        await link.send(
            opening(
                engine="paged",
                precision="exact",
                wire_dtype=WireDtype.F32,
                hidden=SHAPE.hidden,
                vocabulary=SHAPE.vocabulary,
                last_layer=3,
            )
        )
        error = await until(link, Error)
        assert (error.code, error.text, error.hint) == (
            "engine",
            "the paged engine failed its self-check on CPU: rollback: wrong",
            "use --kv masked",
        )


async def test_a_shard_that_openvino_cannot_read_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "0-3.xml").write_text("this is no model")
    async with AsyncExitStack() as stack:
        (address,) = await real_peers(stack, tmp_path, 1)
        link = await control(address)
        await link.send(
            opening(
                precision="exact",
                wire_dtype=WireDtype.F32,
                hidden=SHAPE.hidden,
                vocabulary=SHAPE.vocabulary,
                last_layer=3,
            )
        )
        error = await until(link, Error)
        assert error.code == "engine"
        assert "\n" not in error.text
