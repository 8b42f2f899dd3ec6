"""Whether an OPEN can be served: it is compared with the peer's own manifest (pure).

Every refusal names both sides' values and the remedy, because the two ends are often two people.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetchat.cutter.manifest import Manifest, StageEntry
from fleetchat.engine.interface import EngineTraits
from fleetchat.engine.ledger import reserved_cells
from fleetchat.engine.precision import wire_dtype
from fleetchat.peer.faults import ChainFault
from fleetchat.wire.frames import FaultCode, Open

KEY_DIGITS = 12  # of a build key, in messages


def find_stage(open_: Open, manifest: Manifest | None, others: Sequence[Manifest]) -> StageEntry:
    """The entry of the stage that OPEN asks for. Raises ChainFault (no-shard, build-key, mismatch).

    `manifest` is the peer's own for the build key, `others` are what else it has in store.
    """
    if manifest is None:
        raise _no_such_build(open_, others)
    if open_.stages != len(manifest.stages) or open_.stage >= len(manifest.stages):
        raise _mismatch("number of stages", open_.stages, len(manifest.stages))
    entry = manifest.stages[open_.stage]
    expected_dtype = wire_dtype(open_.precision, manifest.self_check.largest_activation)
    compared = (
        ("layer range", (open_.first_layer, open_.last_layer), (entry.first_layer, entry.last_layer)),
        ("vocabulary", open_.vocabulary, manifest.vocabulary),
        ("hidden width", open_.hidden, manifest.hidden),
        ("wire dtype", open_.wire_dtype.value, expected_dtype.value),
    )
    for name, theirs, ours in compared:
        if theirs != ours:
            raise _mismatch(name, theirs, ours)
    return entry


def check_engine(open_: Open, engines: Sequence[str]) -> None:
    """Raises ChainFault (engine) for an engine that is not served here."""
    if open_.engine not in engines:
        raise ChainFault(
            FaultCode.ENGINE,
            f"the KV engine differs: the chat says {open_.engine}, this peer says {' or '.join(engines)}",
            hint=f"use --kv {engines[0]}",
        )


def granted_cells(open_: Open, manifest: Manifest, traits: EngineTraits, *, granted: int) -> int:
    """KV cells for one chain: what it wants, or what is left, in whole blocks. Raises ChainFault (cells).

    What is left must hold one session of the chain's context; more rows than the context never come
    in one batch, so `max_rows` is the least that the context can be. An engine with blocks keeps no
    dead cells, it needs no more than that.
    """
    budget = traits.cells
    left = budget - granted
    context = min(manifest.context, open_.max_rows)
    needed = reserved_cells(context) if traits.block_size == 1 else context
    least = _whole_blocks(min(open_.cells_wanted, needed), traits)
    if left < max(1, least):
        taken = f", {granted} of them taken by other chains" if granted else ""
        raise ChainFault(
            FaultCode.CELLS,
            f"one session needs {least} KV cells, this stage has {left} left of {budget}{taken}",
            hint="use a smaller --context, close other chats, or give the stage more cells: kv_cells under "
            "[fleet] in the chat's fleet.toml, or --kv-cells of `fleetchat peer`",
        )
    return min(_whole_blocks(open_.cells_wanted, traits), left)


def _whole_blocks(cells: int, traits: EngineTraits) -> int:
    return -(-cells // traits.block_size) * traits.block_size


def _no_such_build(open_: Open, others: Sequence[Manifest]) -> ChainFault:
    wanted = open_.build_key[:KEY_DIGITS]
    for other in others:
        if _same_shape(open_, other):
            return ChainFault(
                FaultCode.BUILD_KEY,
                f"the chat has build {wanted} of this model, this peer has build "
                f"{other.build_key[:KEY_DIGITS]} ({other.recipe}, made by {other.converter})",
                hint=f"install the same fleetchat on both sides, then: "
                f"fleetchat shards build {other.recipe} --stages {open_.stages}",
            )
    names = (f"{other.recipe} in {len(other.stages)} ({other.build_key[:KEY_DIGITS]})" for other in others)
    held = ", ".join(names)
    return ChainFault(
        FaultCode.NO_SHARD,
        f"the chat wants a shard of build {wanted}, this peer has {held[:300] or 'no shards at all'}",
        hint=f"build it on the peer: fleetchat shards build RECIPE --stages {open_.stages}",
    )


def _same_shape(open_: Open, other: Manifest) -> bool:
    if len(other.stages) != open_.stages or open_.stage >= open_.stages:
        return False
    entry = other.stages[open_.stage]
    theirs = (open_.hidden, open_.vocabulary, open_.first_layer, open_.last_layer)
    return theirs == (other.hidden, other.vocabulary, entry.first_layer, entry.last_layer)


def _mismatch(name: str, theirs: object, ours: object) -> ChainFault:
    return ChainFault(
        FaultCode.MISMATCH,
        f"the {name} differs: the chat says {theirs}, this peer says {ours}",
        hint="install the same fleetchat on both sides and build the shards again",
    )
