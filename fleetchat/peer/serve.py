"""The peer's door: takes connections, shakes hands, and hands each link to whom it concerns.

It moves bytes and decides nothing about inference. No connection can take the peer down: whatever goes
wrong on one of them is logged and ends that one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from fleetchat.errors import FleetError, PeerLost, RemoteProtocolError
from fleetchat.ids import ChainId, StageIndex
from fleetchat.peer.downstream import announce_end, close_now, say_goodbye
from fleetchat.peer.faults import ChainFault, error_frame
from fleetchat.peer.guard import WINDOW, Guard
from fleetchat.peer.interfaces import is_loopback
from fleetchat.peer.loading import EngineFactory, LoadedStages, ShardStore
from fleetchat.peer.measuring import TimeLayer, serve_measuring
from fleetchat.peer.opening import check_engine, find_stage
from fleetchat.peer.receive_shard import ShardReceiver
from fleetchat.peer.service import PING_INTERVAL, SILENCE, ChainService
from fleetchat.transport.dialling import accept
from fleetchat.transport.link import HANDSHAKE_DEADLINE, Link
from fleetchat.transport.sockets import address_of
from fleetchat.transport.tasks import open_tasks
from fleetchat.wire.frames import Attach, FaultCode, Frame, Goodbye, NotYet, Open, StatsRequest
from fleetchat.wire.states import Purpose

MAX_STRANGERS = 64  # connections at once that have not proved the key
FIRST_FRAME_DEADLINE = 30.0
"""Seconds from the handshake to OPEN or ATTACH: a link that only measures is not kept for ever."""

PAUSE_INTERVAL = 5.0  # seconds between two looks at the battery
PAUSED = "the peer's machine runs on its battery, so it serves nobody"
REPORT_DEADLINE = 2.0  # seconds for a frame to a coordinator that does not read
ENGINES = ("masked", "paged")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """`cells` None: from the memory that is free when a shard is loaded, shared by `stages_here` stages.

    Deadlines in seconds.
    """

    key: bytes
    device: str = "CPU"
    threads: int = 1
    cells: int | None = None
    stages_here: int = 1
    engines: tuple[str, ...] = ENGINES
    handshake_deadline: float = HANDSHAKE_DEADLINE
    first_frame_deadline: float = FIRST_FRAME_DEADLINE
    ping: float = PING_INTERVAL
    silence: float = SILENCE  # on the link to the next stage
    time_layer: TimeLayer | None = None  # how a plan times this peer
    is_trusted: Callable[[str], bool] = is_loopback  # hosts whose failed handshakes do not count
    pause: Callable[[], bool] | None = None  # asked now and then: whether nobody is to be served


async def serve(
    listeners: Sequence[trio.SocketListener],
    options: PeerOptions,
    *,
    store: ShardStore,
    engine_factory: EngineFactory,
) -> None:
    """Serve shards until cancelled; then say GOODBYE to every coordinator and end the threads."""
    stages = LoadedStages(
        store,
        engine_factory,
        device=options.device,
        threads=options.threads,
        cells=options.cells,
        stages_here=options.stages_here,
    )
    peer = Peer(options, store, stages)
    try:
        async with open_tasks() as tasks:
            if options.pause is not None:
                tasks.start_soon(peer.watch_pause, options.pause)
            await trio.serve_listeners(peer.serve_connection, list(listeners))
    finally:
        await stages.aclose()


class Peer:
    """The chains of this process, by chain and stage: two stages of one chain may be here."""

    def __init__(self, options: PeerOptions, store: ShardStore, stages: LoadedStages) -> None:
        self._options = options
        self._store = store
        self._stages = stages
        self._chains: dict[tuple[ChainId, StageIndex], ChainService] = {}
        self._guard = Guard()
        self._receiver = ShardReceiver(store)
        self._measuring = trio.Lock()
        self._strangers = 0
        self._paused = False
        self._controls: set[trio.CancelScope] = set()

    async def watch_pause(self, pause: Callable[[], bool]) -> None:
        """Every chain gets GOODBYE when the pause begins; what is asked meanwhile is refused."""
        while True:
            paused, before = await trio.to_thread.run_sync(pause), self._paused
            self._paused = paused
            if paused and not before:
                _log.info("paused: this machine runs on its battery")
                for scope in list(self._controls):
                    scope.cancel()
            elif before and not paused:
                _log.info("serving again")
            await trio.sleep(PAUSE_INTERVAL)

    async def serve_connection(self, stream: trio.SocketStream) -> None:
        """One connection from beginning to end; never raises but for cancellation."""
        try:
            if self._strangers >= MAX_STRANGERS:
                _log.warning("a connection was refused: %d others have not proved the key", self._strangers)
            elif not self._guard.is_blocked(_host(stream), trio.current_time()):
                await self._serve_link(await self._welcome(stream))
        except FleetError as error:
            _log.info("%s", error.message)
        except Exception:
            _log.exception("a connection failed")
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _welcome(self, stream: trio.SocketStream) -> Link:
        host = _host(stream)
        self._strangers += 1
        try:
            link = await accept(
                stream, self._options.key, handshake_deadline=self._options.handshake_deadline
            )
        except FleetError:
            blocked = not self._options.is_trusted(host) and self._guard.failed(host, trio.current_time())
            if blocked:
                _log.warning("%s failed too often: nothing is taken from it for %g s", host, WINDOW)
            raise
        finally:
            self._strangers -= 1
        self._guard.succeeded(host)
        return link

    async def _serve_link(self, link: Link) -> None:
        try:
            match link.purpose:
                case Purpose.CONTROL:
                    await self._serve_control(link)
                case Purpose.DATA:
                    await self._serve_data(link)
                case Purpose.SHARD:
                    await self._receiver.serve(link, self._options.first_frame_deadline)
                case Purpose.MEASURE:
                    options = self._options
                    silence = options.first_frame_deadline
                    await serve_measuring(
                        link, options.device, options.time_layer, self._measuring, silence=silence
                    )
        finally:
            await close_now(link)

    async def _serve_data(self, link: Link) -> None:
        frame = None
        with trio.move_on_after(self._options.first_frame_deadline):
            frame = await link.receive()
        if not isinstance(frame, Attach):
            raise RemoteProtocolError(f"{link} opened a data link and did not attach it")
        service = self._chains.get((frame.chain, frame.stage))
        if service is None or service.ended.is_set() or service.open.epoch != frame.epoch:
            await link.send(NotYet())
        else:
            await service.serve_data_link(link, frame.role)

    async def _serve_control(self, link: Link) -> None:
        """A chain lives no longer than its control link."""
        scope = trio.CancelScope()
        self._controls.add(scope)
        try:
            with scope:
                async with open_tasks() as tasks:
                    try:
                        await self._read_control(link, tasks)
                    except trio.Cancelled:  # before the chain's data links break
                        await announce_end(link, PAUSED if self._paused else "the peer was stopped")
                        raise
                    tasks.cancel_scope.cancel()
        finally:
            self._controls.discard(scope)
            await say_goodbye(link, "the chain is closed")

    async def _read_control(self, link: Link, tasks: trio.Nursery) -> None:
        service: ChainService | None = None
        with trio.move_on_after(self._options.first_frame_deadline) as patience:
            while True:
                frame = await link.receive()
                match frame:
                    case Open():
                        patience.deadline = float("inf")
                        if service is not None:
                            await _end(service)
                        service = await self._open(frame, link, tasks)
                    case StatsRequest():
                        if service is not None:
                            await link.send(service.statistics())
                    case Goodbye():
                        return
                    case _:
                        raise RemoteProtocolError(f"{type(frame).__name__} on a control link")
        raise PeerLost(f"{link} opened no chain in time")

    async def _open(self, open_: Open, link: Link, tasks: trio.Nursery) -> ChainService | None:
        """Begin to serve a chain; None, and an ERROR, when it cannot be served here."""
        try:
            service = await self._admit(open_, link)
        except ChainFault as fault:
            _log.info("%s was refused: %s", link, fault.message)
            await link.send(error_frame(fault))
            return None
        _log.info("%s opened stage %d (of %d), epoch %d", link, open_.stage, open_.stages, open_.epoch)
        self._chains[open_.chain, open_.stage] = service
        tasks.start_soon(self._run, service)
        return service

    async def _admit(self, open_: Open, link: Link) -> ChainService:
        """Raises ChainFault."""
        if self._paused:
            raise ChainFault(FaultCode.PAUSED, PAUSED, hint="it serves again when it is back on mains power")
        check_engine(open_, self._options.engines)
        manifest = await trio.to_thread.run_sync(self._store.find, open_.build_key, open_.stage)
        others = [] if manifest else await trio.to_thread.run_sync(self._store.builds)
        others = [other for other in others if other.build_key != open_.build_key]
        find_stage(open_, manifest, others)
        assert manifest is not None  # find_stage raised otherwise
        before = self._chains.get((open_.chain, open_.stage))
        if before is not None:
            if before.open.epoch >= open_.epoch:
                text = f"epoch {before.open.epoch} of this chain is served here, epoch {open_.epoch} came"
                raise ChainFault(FaultCode.PROTOCOL, text)
            await _end(before)
        return ChainService(
            open_,
            manifest,
            self._stages,
            self._options.key,
            partial(_report, link),
            ping=self._options.ping,
            silence=self._options.silence,
        )

    async def _run(self, service: ChainService) -> None:
        place = service.open.chain, service.open.stage
        try:
            await service.run()
        finally:
            if self._chains.get(place) is service:
                del self._chains[place]


def _host(stream: trio.SocketStream) -> str:
    """Where a connection comes from; empty when it is gone already."""
    address = address_of(stream)
    return address.host if address else ""


async def _report(link: Link, frame: Frame) -> None:
    """Send on a control link, whole: what ends a chain or a step of it must not cut a frame in two."""
    with trio.move_on_after(REPORT_DEADLINE, shield=True):
        await link.send(frame)


async def _end(service: ChainService) -> None:
    """End a chain that another epoch replaces, and wait until its cells are free."""
    service.cancel()
    await service.ended.wait()
