"""Opening a chain: OPEN to all stages at once, the data links, READY from everybody.

A stage answers ATTACH with NOT_YET until it has parsed its OPEN, so the order of arrival does not
matter; the dialler asks again within the connect deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from fleetchat.engine.ledger import reserved_cells
from fleetchat.engine.precision import Precision, wire_dtype
from fleetchat.errors import FleetError, PeerLost, PeerRefused, PeerUnreachable, ProtocolError
from fleetchat.fleet.chain import Chain, Stage
from fleetchat.fleet.options import FleetOptions, absence_hint, load_deadline
from fleetchat.fleet.telemetry import StageState
from fleetchat.fleet.trouble import Cause
from fleetchat.fleet.versions import own_openvino, version_note
from fleetchat.fleet.watching import (
    Readiness,
    keep_pinging,
    note_network,
    poll_statistics,
    read_control,
    read_results,
    read_upstream,
    refused,
    watch_data_link,
    watch_heartbeat,
    watch_progress,
)
from fleetchat.ids import Address, Epoch, StageIndex
from fleetchat.transport.dialling import dial
from fleetchat.transport.link import Link
from fleetchat.transport.tasks import open_tasks
from fleetchat.wire.frames import (
    Attach,
    Attached,
    AttachRole,
    Error,
    Frame,
    Goodbye,
    NotYet,
    Open,
)
from fleetchat.wire.limits import downstream_limits, upstream_limits
from fleetchat.wire.states import Purpose

ATTACH_RETRY = 0.05  # seconds between two ATTACHes that were answered NOT_YET
MAX_SLICES = 64  # in one batch
SESSIONS_WANTED = 8  # reservations asked for when the user does not say how many cells
CONTEXTS_WANTED = 16  # the same for an engine that takes cells as they are needed


@dataclass(frozen=True, slots=True)
class Opening:
    """What it takes to open one chain. `on_progress` gets one line of text.

    `legs` are other addresses for the data links, one more than stages: measurements put relays there.
    """

    options: FleetOptions
    key: bytes
    on_progress: Callable[[str], None]
    legs: tuple[Address, ...] | None = None

    def leg(self, number: int, chain: Chain) -> Address:
        """Where the data link of a leg is dialled: leg i leads into stage i, the last one back here."""
        if self.legs is not None:
            return self.legs[number]
        return chain.stages[min(number, len(chain.stages) - 1)].address

    @property
    def cells_wanted(self) -> int:
        if self.options.kv_cells is not None:
            return self.options.kv_cells
        if self.options.kv == "paged":
            return CONTEXTS_WANTED * self.options.context
        return SESSIONS_WANTED * reserved_cells(self.options.context)

    def frame(self, chain: Chain, stage: Stage) -> Open:
        """The OPEN of one stage."""
        manifest = self.options.manifest
        following = stage.index + 1
        precision = Precision(self.options.precision)
        return Open(
            chain=chain.identity,
            epoch=chain.epoch,
            build_key=manifest.build_key,
            stage=StageIndex(stage.index),
            stages=len(chain.stages),
            first_layer=stage.first_layer,
            last_layer=stage.last_layer,
            vocabulary=manifest.vocabulary,
            hidden=manifest.hidden,
            wire_dtype=wire_dtype(precision, manifest.self_check.largest_activation),
            precision=self.options.precision,
            engine=self.options.kv,
            next_address=self.leg(following, chain) if following < len(chain.stages) else None,
            cells_wanted=self.cells_wanted,
            max_rows=self.options.context,
            max_slices=MAX_SLICES,
        )


def new_chain(
    options: FleetOptions,
    addresses: Sequence[Address],
    before: Chain | None = None,
    *,
    beside: Chain | None = None,
) -> Chain:
    """A chain that nobody was asked to serve yet; with `before` it is the next epoch of that one.

    With `beside` it is another chain, to be opened while that one serves; its epoch is the next number.
    """
    chain = Chain(
        stages_of(options, addresses),
        deadlines=options.deadlines,
        vocabulary=options.manifest.vocabulary,
        before=before,
    )
    if beside is not None:
        chain.epoch = Epoch(beside.epoch + 1)
    for stage, old in zip(chain.stages, before.stages if before else (), strict=False):
        stage.record = old.record
        if old.state is StageState.READY and old.address == stage.address:
            stage.state = StageState.READY  # it was not lost, and keeps its shard; the OPEN tells if not
    return chain


def stages_of(options: FleetOptions, addresses: Sequence[Address]) -> list[Stage]:
    """The chain's stages in order, before anything is dialled."""
    return [
        Stage(
            index=entry.index,
            title=peer.title,
            address=address,
            first_layer=entry.first_layer,
            last_layer=entry.last_layer,
        )
        for entry, peer, address in zip(options.manifest.stages, options.peers, addresses, strict=True)
    ]


@asynccontextmanager
async def open_chain(opening: Opening, chain: Chain) -> AsyncIterator[None]:
    """Open a chain that `new_chain` made; it is closed with GOODBYE at the end.

    Links are always new: so no frame of an epoch before can come over them. A stage that still serves that
    epoch ends it when it reads the OPEN, and keeps its shard loaded.

    Raises PeerUnreachable, AuthenticationFailed, PeerRefused (with both sides' values) or PeerLost; the stage
    that is to blame is LOST then.
    """
    controls: list[Link] = []
    links: list[Link] = []
    async with open_tasks() as nursery:
        try:
            await _connect_all(opening, chain, controls, links, nursery)
            chain.opened_at = trio.current_time()
            yield
        finally:
            with trio.CancelScope(shield=True):
                await _take_leave(controls, links)
            nursery.cancel_scope.cancel()


async def _connect_all(
    opening: Opening, chain: Chain, controls: list[Link], links: list[Link], nursery: trio.Nursery
) -> None:
    readiness = Readiness(chain, opening.on_progress)
    for stage in chain.stages:
        link = await _dial(opening, chain, stage, stage.address, Purpose.CONTROL)
        controls.append(link)
        if stage.state is StageState.CONNECTING:
            stage.state = StageState.LOADING
        await _send_open(opening, chain, stage, link)
        nursery.start_soon(read_control, link, stage, chain, readiness)
        nursery.start_soon(poll_statistics, link, stage, chain)
        nursery.start_soon(keep_pinging, link, chain)
        nursery.start_soon(watch_heartbeat, link, stage, chain)
    largest = max(entry.bin.size for entry in opening.options.manifest.stages)
    with trio.move_on_after(load_deadline(largest)) as deadline:
        nursery.start_soon(_cancel_when_failed, chain, deadline)
        upstream, returning = await _attach_both(opening, chain, links)
        await readiness.wait()
    chain.check()
    if deadline.cancelled_caught:
        waiting = [stage.title for stage in chain.stages if stage.ready is None]
        raise FleetError(f"{', '.join(waiting)} did not become ready in {load_deadline(largest):.0f} s")
    _tell_versions(opening, chain)
    windows = [stage.ready.window for stage in chain.stages if stage.ready]
    chain.start(upstream, min(windows))
    nursery.start_soon(read_upstream, upstream, chain)
    nursery.start_soon(read_results, returning, chain)
    for link, stage in ((upstream, chain.stages[0]), (returning, chain.stages[-1])):
        nursery.start_soon(keep_pinging, link, chain)
        nursery.start_soon(watch_data_link, link, stage, chain)
    nursery.start_soon(note_network, upstream, returning, chain)
    nursery.start_soon(watch_progress, chain)


def _tell_versions(opening: Opening, chain: Chain) -> None:
    """Raises PeerRefused for a stage whose OpenVINO is of another series."""
    for stage in chain.stages:
        assert stage.ready is not None
        ready = stage.ready
        try:
            note = version_note(
                stage.place, fleetchat=ready.fleetchat, openvino=ready.openvino, ours=own_openvino()
            )
        except PeerRefused as failure:
            chain.lose(stage, failure, Cause.REFUSED)
            raise
        if note:
            opening.on_progress(note)


async def _cancel_when_failed(chain: Chain, scope: trio.CancelScope) -> None:
    """A stage that is lost while others are waited for is told at once."""
    await chain.wait_failed()
    scope.cancel()


async def _send_open(opening: Opening, chain: Chain, stage: Stage, link: Link) -> None:
    try:
        await link.send(opening.frame(chain, stage))
    except PeerLost as failure:
        chain.lose(stage, failure, Cause.DIED)
        raise


async def _dial(opening: Opening, chain: Chain, stage: Stage, address: Address, purpose: Purpose) -> Link:
    deadline = opening.options.connect_deadline
    try:
        return await dial(address, opening.key, purpose=purpose, connect_deadline=deadline)
    except PeerUnreachable as failure:
        told = PeerUnreachable(f"stage {stage.index}: {failure.message}", hint=_hint(opening, stage, failure))
        chain.lose(stage, told, Cause.UNREACHABLE)
        raise told from failure
    except PeerLost as failure:
        lost = PeerLost(f"stage {stage.index}: {failure.message}", hint=_hint(opening, stage, failure))
        chain.lose(stage, lost, Cause.UNREACHABLE)
        raise lost from failure
    except FleetError as failure:
        chain.lose(stage, failure, Cause.REFUSED if isinstance(failure, PeerRefused) else Cause.UNREACHABLE)
        raise


def _hint(opening: Opening, stage: Stage, failure: FleetError) -> str | None:
    """Of a peer of the configuration, which file names it, and how it is taken out."""
    options = opening.options
    if options.named_in is None or options.peers[stage.index].address is None:
        return failure.hint
    hint = absence_hint(stage.address, options.named_in)
    return f"{failure.hint}; or {hint}" if isinstance(failure, PeerLost) and failure.hint else hint


async def _attach_both(opening: Opening, chain: Chain, links: list[Link]) -> tuple[Link, Link]:
    first, last = chain.stages[0], chain.stages[-1]
    upstream = await _attach(opening, chain, first, AttachRole.UPSTREAM)
    links.append(upstream)
    returning = await _attach(opening, chain, last, AttachRole.RETURN)
    links.append(returning)
    return upstream, returning


async def _attach(opening: Opening, chain: Chain, stage: Stage, role: AttachRole) -> Link:
    into = role is AttachRole.UPSTREAM
    address = opening.leg(stage.index if into else stage.index + 1, chain)
    with trio.move_on_after(opening.options.connect_deadline):
        while True:
            chain.check()
            link = await _dial(opening, chain, stage, address, Purpose.DATA)
            answer = await _ask_to_attach(
                link, Attach(chain.identity, chain.epoch, StageIndex(stage.index), role)
            )
            if isinstance(answer, Attached):
                opened = opening.frame(chain, stage)
                link.set_limits(upstream_limits(opened) if into else downstream_limits(opened))
                return link
            await link.aclose()
            if isinstance(answer, Error):
                raise refused(stage, answer)
            if not isinstance(answer, NotYet):
                raise ProtocolError(f"stage {stage.index} answered ATTACH with {type(answer).__name__}")
            await trio.sleep(ATTACH_RETRY)
    chain.check()
    raise PeerUnreachable(
        f"stage {stage.index} at {stage.address} did not accept the chain's data link within "
        f"{opening.options.connect_deadline:.0f} s"
    )


async def _ask_to_attach(link: Link, attach: Attach) -> Frame:
    try:
        await link.send(attach)
        return await link.receive()
    except BaseException:
        await link.aclose()
        raise


async def _take_leave(controls: list[Link], links: list[Link]) -> None:
    with trio.move_on_after(1.0):
        for link in controls:
            try:
                await link.send(Goodbye("the coordinator is done"))
            except (PeerLost, ProtocolError):
                continue
    for link in (*controls, *links):
        await link.aclose()
