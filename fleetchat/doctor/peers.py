"""The configured peers: reachable, with the same key, and with the shard that they are to serve?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import trio

from fleetchat.doctor.finding import Finding, fail, failure_of, ok, warn
from fleetchat.errors import FleetchatError, PeerLost, PeerUnreachable, RemoteProtocolError
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.measuring import measure_peer, measurement_lines
from fleetchat.fleet.opening import Opening, stages_of
from fleetchat.fleet.options import FleetOptions, PeerSpec
from fleetchat.fleet.watching import SHARD_FAULTS
from fleetchat.ids import Address
from fleetchat.transport.dialling import dial
from fleetchat.transport.link import Link
from fleetchat.wire.frames import Error, Goodbye, Open, Progress, Ready
from fleetchat.wire.states import Purpose

CONNECT_DEADLINE = 5.0  # seconds
ANSWER_DEADLINE = 3.0  # seconds: a refusal comes at once, a shard that is loaded already says nothing
EVERYWHERE = "masked"  # the engine that every peer has; what "auto" becomes is settled by the chain
VERIFIED = 1  # PROGRESS counts this far when the shard's hashes are compared

LACKS = "its shard is not there yet"
SENT_LATER = "nothing: the next chat sends it"
UNREACHABLE = (
    "start `fleetchat peer --listen 0.0.0.0:PORT --key-file FILE` there, let its port through the firewall, "
    "and check the address in fleet.toml"
)


@dataclass(frozen=True, slots=True)
class Question:
    """One peer; `open_` is what the chat will ask of it, None when there are no shards here to compare."""

    number: int
    peer: PeerSpec
    address: Address
    open_: Open | None
    turn: trio.Lock = field(default_factory=trio.Lock)  # one peer at a time is measured

    @property
    def name(self) -> str:
        return f"peer {self.number}"

    @property
    def title(self) -> str:
        return f"{self.peer.name} at {self.address}" if self.peer.name else f"{self.address}"


def questions(peers: tuple[PeerSpec, ...], options: FleetOptions | None, key: bytes) -> list[Question]:
    """What to ask of the peers that have an address."""
    remote = [(number, peer, peer.address) for number, peer in enumerate(peers) if peer.address is not None]
    if options is None:
        return [Question(number, peer, address, None) for number, peer, address in remote]
    nearest = remote[0][2] if remote else Address("127.0.0.1", 1)
    addresses = [peer.address or nearest for peer in peers]  # a stage of this machine has no port yet
    chain = Chain(stages_of(options, addresses))
    turn = trio.Lock()
    engine = EVERYWHERE if options.kv == "auto" else options.kv
    opening = Opening(replace(options, kv=engine), key, lambda line: None)
    return [
        Question(number, peer, address, opening.frame(chain, chain.stages[number]), turn)
        for number, peer, address in remote
    ]


async def check_peers(
    asked: list[Question], key: bytes, report: Callable[[Finding], None], rebuild: str
) -> None:
    """Ask all at once; `report` gets the findings in the order of the chain."""
    found: dict[int, Finding] = {}
    async with trio.open_nursery() as nursery:
        for question in asked:
            nursery.start_soon(_note, question, key, found, rebuild)
    for question in asked:
        report(found[question.number])


async def _note(question: Question, key: bytes, found: dict[int, Finding], rebuild: str) -> None:
    started = time.perf_counter()
    finding = await check_peer(question, key, rebuild)
    found[question.number] = replace(finding, milliseconds=(time.perf_counter() - started) * 1000)


async def check_peer(question: Question, key: bytes, rebuild: str) -> Finding:
    """Dial, shake hands, ask for the stage, and leave."""
    started = time.perf_counter()
    try:
        link = await dial(question.address, key, purpose=Purpose.CONTROL, connect_deadline=CONNECT_DEADLINE)
    except (PeerLost, RemoteProtocolError) as error:
        return fail(
            question.name,
            f"{error.message}: it is no fleetchat peer, or one that hangs",
            (error.hint if isinstance(error, PeerLost) else "")
            or f"correct the address {question.address} in fleet.toml, or end what listens there and start "
            "`fleetchat peer`",
        )
    except PeerUnreachable as error:
        return fail(question.name, error.message, UNREACHABLE)
    except FleetchatError as error:
        return failure_of(question.name, error, "start `fleetchat peer` there")
    milliseconds = (time.perf_counter() - started) * 1000
    try:
        refusal = await _ask(link, question.open_)
    except FleetchatError as error:
        return failure_of(question.name, error, "see the output of `fleetchat peer` there")
    finally:
        await link.aclose()
    said = f"fleetchat {link.their_version}, the key is right, handshake {milliseconds:.0f} ms"
    if refusal is not None and refusal.code in SHARD_FAULTS:
        details = await _measured(question, key)
        return warn(question.name, f"{question.title}: {said}; {LACKS}", SENT_LATER, *details)
    if refusal is not None:
        return fail(question.name, f"{question.title}: {refusal.text}", refusal.hint or rebuild)
    shard = "it has the shard" if question.open_ else "its shard was not asked for: there are none here"
    return ok(question.name, f"{question.title}: {said}; {shard}", *await _measured(question, key))


async def _measured(question: Question, key: bytes) -> tuple[str, ...]:
    """Memory, device and link of a peer, in a line; why not, where that fails."""
    try:
        async with question.turn:
            measure = await measure_peer(question.peer.title, question.address, key)
    except FleetchatError as error:
        return (f"not measured: {error.message}",)
    return tuple(measurement_lines([measure]))


async def _ask(link: Link, open_: Open | None) -> Error | None:
    """The peer's refusal; None when it takes the stage. The chain is given up at once."""
    if open_ is None:
        return None
    await link.send(open_)
    refusal = None
    with trio.move_on_after(ANSWER_DEADLINE):
        while True:
            frame = await link.receive()
            if isinstance(frame, Error):
                refusal = frame
                break
            if isinstance(frame, Ready) or (isinstance(frame, Progress) and frame.done >= VERIFIED):
                break
    if refusal is None:
        await link.send(Goodbye("doctor has seen enough"))
    return refusal
