"""Does a peer answer, and does it hold our key? It is greeted and left again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from fleetchat.errors import AuthenticationFailed, FleetchatError
from fleetchat.ids import Address
from fleetchat.transport.dialling import dial
from fleetchat.wire.frames import Goodbye
from fleetchat.wire.states import Purpose

DEADLINE = 3.0  # seconds


@dataclass(frozen=True, slots=True)
class Greeting:
    """`address` is the one that answered, or the first. `answers`: with the right key."""

    address: Address
    answers: bool
    text: str
    hint: str = ""
    silent: bool = False  # nobody answers there, or nobody who keeps to the protocol

    @property
    def reason(self) -> str:
        """`text` as a sentence of its own."""
        return f"it {self.text}" if self.silent else self.text


async def greet_all(peers: Sequence[Sequence[Address]], key: bytes | None) -> list[Greeting]:
    """Each peer under its addresses, all at once. `key` None: there is none here to compare."""
    found: dict[int, Greeting] = {}

    async def greet_one(number: int, addresses: Sequence[Address]) -> None:
        found[number] = await greet(addresses, key)

    async with trio.open_nursery() as nursery:
        for number, addresses in enumerate(peers):
            nursery.start_soon(greet_one, number, addresses)
    return [found[number] for number in range(len(peers))]


async def greet(addresses: Sequence[Address], key: bytes | None) -> Greeting:
    """The first address that answers counts."""
    answers = [await _greet(address, key) for address in addresses[:1]]
    for address in addresses[1:]:
        if answers[-1].answers:
            break
        answers.append(await _greet(address, key))
    good = [answer for answer in answers if answer.answers]
    return (good or answers)[0]


async def _greet(address: Address, key: bytes | None) -> Greeting:
    started = time.perf_counter()
    try:
        link = await dial(
            address,
            bytes(32) if key is None else key,
            purpose=Purpose.CONTROL,
            connect_deadline=DEADLINE,
            handshake_deadline=DEADLINE,
        )
    except AuthenticationFailed as error:
        if key is None:
            return Greeting(
                address, False, "a peer answers, but there is no key here", "copy the fleet's key file"
            )
        return Greeting(address, False, "a peer answers, but it holds another key", error.hint or "")
    except FleetchatError as error:
        text = error.message.removeprefix(f"no peer answers at {address}").removeprefix(f"{address}")
        text = text.lstrip(": ")
        return Greeting(address, False, f"does not answer: {text}", error.hint or "", silent=True)
    milliseconds = (time.perf_counter() - started) * 1000
    version = link.their_version
    try:
        await link.send(Goodbye("only a greeting"))
    except FleetchatError:
        return Greeting(address, False, "left in mid-greeting", silent=True)
    finally:
        await link.aclose()
    return Greeting(address, True, f"answers, fleetchat {version}, the key is right, {milliseconds:.1f} ms")
