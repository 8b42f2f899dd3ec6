"""Damage for frames: seeded, so that a failure can be repeated."""

from __future__ import annotations

from random import Random

EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def mutated(wire: bytes, random: Random) -> bytes:
    """One to four things go wrong with `wire`."""
    for _ in range(random.randint(1, 4)):
        wire = random.choice((_flip, _edge, _cut, _insert, _repeat, _number))(wire, random)
    return wire


def _flip(wire: bytes, random: Random) -> bytes:
    if not wire:
        return wire
    place = random.randrange(len(wire))
    return wire[:place] + bytes([wire[place] ^ 1 << random.randrange(8)]) + wire[place + 1 :]


def _edge(wire: bytes, random: Random) -> bytes:
    if not wire:
        return wire
    place = random.randrange(len(wire))
    return wire[:place] + bytes([random.choice(EDGES)]) + wire[place + 1 :]


def _cut(wire: bytes, random: Random) -> bytes:
    start = random.randrange(len(wire) + 1)
    return wire[:start] + wire[start + random.randint(1, 16) :]


def _insert(wire: bytes, random: Random) -> bytes:
    place = random.randrange(len(wire) + 1)
    return wire[:place] + random.randbytes(random.randint(1, 16)) + wire[place:]


def _repeat(wire: bytes, random: Random) -> bytes:
    start = random.randrange(len(wire) + 1)
    piece = wire[start : start + random.randint(1, 32)]
    return wire[:start] + piece + wire[start:]


def _number(wire: bytes, random: Random) -> bytes:
    """A count or a length becomes one that hurts."""
    if len(wire) < 4:
        return wire
    place = random.randrange(len(wire) - 3)
    hurtful = random.choice((0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1))
    return wire[:place] + hurtful.to_bytes(4, "little") + wire[place + 4 :]
