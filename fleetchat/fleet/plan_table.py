"""A plan in words: a table that explains itself, and what follows from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fleetchat.fleet.placement import KEPT_FREE, Load, PeerFacts, Plan, gigabytes, usable

COLUMNS = ("stage", "peer", "layers", "weights", "KV", "needs", "may use", "one token", "prompt")


def plan_lines(load: Load, peers: Sequence[PeerFacts], plan: Plan) -> list[str]:
    """The table, who is left out, and the speeds."""
    rows = [COLUMNS]
    for number, stage in enumerate(plan.stages):
        peer = peers[stage.peer]
        rows.append(
            (
                str(number),
                peer.name,
                f"{stage.first}-{stage.last}",
                gigabytes(stage.weights),
                gigabytes(stage.cache),
                gigabytes(stage.memory),
                gigabytes(usable(peer)),
                milliseconds(stage.decode),
                _seconds(stage.prefill),
            )
        )
    used = {stage.peer for stage in plan.stages}
    lines = aligned(rows, left=(1, 2))
    lines += [
        f"left out: {peer.name} (the chain is no slower without it)"
        for number, peer in enumerate(peers)
        if number not in used
    ]
    return [*lines, "", *_conclusions(load, peers, plan)]


def _conclusions(load: Load, peers: Sequence[PeerFacts], plan: Plan) -> list[str]:
    slowest = plan.slowest
    prompt = sum(stage.prefill for stage in plan.stages)
    several = plan.together(load.conversations)
    one = load.conversations == 1
    together = "" if one else f"{load.conversations} together: {several:.1f} tokens/s; "
    lines = [
        f"one conversation: {plan.one_conversation:.1f} tokens/s; {together}"
        f"a prompt of {load.prompt} tokens: {_seconds(prompt)}",
        f"the slowest stage is {peers[slowest.peer].name}: {milliseconds(slowest.decode)} a token",
    ]
    best = plan.best_alone
    if best is None:
        return [*lines, f"no machine alone holds {load.shape.name}: the chain is the way to run it"]
    rate = plan.alone[best]
    assert rate is not None
    name = peers[best].name
    if len(plan.stages) == 1 and plan.stages[0].peer == best:
        return [*lines, f"{name} holds the whole model: nothing is to be gained by cutting it"]
    if rate > plan.one_conversation:
        lines.append(
            f"one machine alone is faster for one conversation: {name} by itself gives {rate:.1f} tokens/s, "
            f"the chain {plan.one_conversation:.1f}"
        )
    who = (
        "one conversation on the chain gets"
        if one
        else f"{load.conversations} conversations on the chain get"
    )
    lines.append(f"{who} {several / rate:.1f} times what {name} alone gives one")
    return lines


def assumption_lines(load: Load) -> list[str]:
    """What every plan takes for granted."""
    return [
        f"weights at {load.bits} bits, {load.conversations} conversation"
        f"{'' if load.conversations == 1 else 's'} of {load.context:,} tokens, no "
        f"speculation; every peer keeps {KEPT_FREE:.0%} of its free memory; a leg between two peers counts "
        "as the one between the chat and the second",
    ]


def aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> list[str]:
    """Rows as lines; the columns `left` begin at the left, numbers end at the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def milliseconds(seconds: float) -> str:
    """For people."""
    return f"{seconds * 1000:.1f} ms"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
