"""`fleetchat fleet plan`: which peer serves which layers, and why."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetchat.cli.output import print_diagnostic
from fleetchat.errors import InputError

if TYPE_CHECKING:
    from fleetchat.fleet.placement import Load, PeerFacts, Plan

MOVES = "a chat that runs moves to it by itself, and so does the next start"


def register(actions: argparse._SubParsersAction[Any]) -> None:
    """Add the action to the group."""
    parser = actions.add_parser(
        "plan",
        help="which peer should serve which layers, and how fast that would be",
        description="Measure the peers of the fleet and cut the model so that the slowest stage is fastest. "
        "With --peers nothing is measured: a plan on paper.",
    )
    parser.add_argument(
        "--peers",
        metavar="4x32GB",
        help="machines on paper, by their memory; or 2x16GB,64GB",
    )
    parser.add_argument(
        "--model",
        metavar="NAME|FILE",
        help="a model's name, or its config.json (default: the recipe's)",
    )
    parser.add_argument("--bits", type=int, choices=(4, 8, 16), default=4, help="of a weight (default 4)")
    parser.add_argument("--context", type=int, default=4096, metavar="N", help="of a conversation (4096)")
    parser.add_argument("--conversations", type=int, default=4, metavar="N", help="at the same time (4)")
    parser.add_argument("--memory-speed", type=float, metavar="GB/S", help="on paper: when decoding (50)")
    parser.add_argument("--compute", type=float, metavar="GFLOP/S", help="on paper: in a prompt (500)")
    parser.add_argument("--network", type=float, metavar="MBIT/S", help="on paper: to the chat (940)")
    parser.add_argument("--round-trip", type=float, metavar="MS", help="on paper: to the chat and back (0.5)")
    parser.add_argument("--fleet", type=Path, metavar="FILE", help="configuration file")
    parser.add_argument(
        "--rebalance",
        action="store_true",
        help="plan from what the chat that runs measures of its stages; with --write it moves to the new cut",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the layers into the file, when all its peers serve some"
    )
    parser.add_argument("--json", action="store_true", help="the plan as JSON on stdout")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan. Raises InputError, with numbers, when the fleet is too small."""
    from fleetchat.fleet.placement import place
    from fleetchat.fleet.plan_table import assumption_lines, plan_lines

    load = _load(options)
    for name in ("write", "rebalance"):
        if getattr(options, name) and (options.peers or options.model):
            raise InputError(f"--{name} is for a measured plan of the configured recipe")
    if options.rebalance and _rebalanced(options, load):
        return 0
    peers, told = _on_paper(options) if options.peers else _measured(options)
    plan = place(load, peers)
    if options.json:
        _print_json(load, peers, plan)
        return 0
    print(f"{load.shape.name}: {load.shape.layers} layers, {load.shape.values / 1e9:.2f} billion weights")
    for line in plan_lines(load, peers, plan):
        print(line)
    for line in (*told, *assumption_lines(load)):
        print(line)
    if options.write:
        _write(options, plan)
    elif not options.peers and not options.model:
        print_diagnostic("to cut the model so: fleetchat fleet plan --write")
    return 0


def _rebalanced(options: argparse.Namespace, load: Load) -> bool:
    """Propose a cut from the live measurements; False when there are none of these peers."""
    import json
    import time
    from dataclasses import asdict

    from fleetchat.cli.confirm import terminal_confirmation
    from fleetchat.config import load as load_configuration
    from fleetchat.config.user_file import title, write_layers
    from fleetchat.fleet.live import read_live
    from fleetchat.fleet.rebalance import propose

    config = load_configuration(options.fleet, confirm=terminal_confirmation())
    serving = [number for number, peer in enumerate(config.fleet.peers) if not peer.spare]
    report = read_live()
    if config.fleet.mode != "peers" or report is None or not report.is_fresh(time.time()):
        print_diagnostic("no chat that runs has measured its stages yet: the peers are measured")
        return False
    if report.model != config.model.recipe or not report.serves(
        [title(config.fleet.peers[number]) for number in serving]
    ):
        print_diagnostic("the chat that runs serves another model or other peers: the peers are measured")
        return False
    proposal = propose(load, report)
    if options.json:
        print(json.dumps(asdict(proposal), indent=2, ensure_ascii=False))
    else:
        for line in proposal.lines:
            print(line)
    if options.write and proposal.worthwhile:
        write_layers(config.file, dict(zip(serving, proposal.then, strict=True)))
        print_diagnostic(f"written to {config.file}; {MOVES}")
    elif proposal.worthwhile:
        print_diagnostic("to move to it: fleetchat fleet plan --rebalance --write")
    return True


def _load(options: argparse.Namespace) -> Load:
    from fleetchat.fleet.placement import Load
    from fleetchat.fleet.shapes import find_shape

    for name in ("context", "conversations"):
        value = getattr(options, name)
        if not 1 <= value <= 10_000_000:
            raise InputError(f"--{name} must be from 1 to 10,000,000, not {value}")
    shape = find_shape(options.model or _configured_recipe(options))
    return Load(shape, options.bits, options.context, options.conversations)


def _configured_recipe(options: argparse.Namespace) -> str:
    from fleetchat.cli.confirm import terminal_confirmation
    from fleetchat.config import load

    return load(options.fleet, confirm=terminal_confirmation()).model.recipe


def _on_paper(options: argparse.Namespace) -> tuple[list[PeerFacts], list[str]]:
    from fleetchat.fleet.paper import Assumptions, paper_peers

    units = {"memory_speed": 1e9, "compute": 1e9, "network": 1e6 / 8, "round_trip": 1e-3}
    given = {}
    for name, unit in units.items():
        value = getattr(options, name)
        if value is not None:
            if not 0 < value < 1e9:
                raise InputError(f"--{name.replace('_', '-')} must be above 0, not {value:g}")
            given["bandwidth" if name == "network" else name] = value * unit
    assumptions = Assumptions(**given)
    return paper_peers(options.peers, assumptions, options.bits), assumptions.lines()


def _measured(options: argparse.Namespace) -> tuple[list[PeerFacts], list[str]]:
    """The configured peers. Raises FleetError for one that does not answer."""
    import trio

    from fleetchat.cli.confirm import terminal_confirmation
    from fleetchat.config import load as load_configuration
    from fleetchat.fleet.configured import key_of, peers_of, spares_of
    from fleetchat.fleet.measuring import measure_all, measurement_lines, sharing_lines

    for name in ("memory_speed", "compute", "network", "round_trip"):
        if getattr(options, name) is not None:
            raise InputError(
                f"--{name.replace('_', '-')} is for plans on paper: name the machines with --peers"
            )
    config = load_configuration(options.fleet, confirm=terminal_confirmation())
    if config.fleet.mode != "peers":
        raise InputError(
            "no peers are named, so there is nothing to measure",
            hint="add some with `fleetchat fleet add HOST:PORT`, or plan on paper: --peers 4x32GB",
        )
    peers = peers_of(config)
    print_diagnostic("measuring the peers, a few seconds each")
    measures = trio.run(
        measure_all, peers, key_of(config, (*peers, *spares_of(config))), config.fleet.threads
    )
    return [one.facts for one in measures], [*measurement_lines(measures), *sharing_lines(measures)]


def _write(options: argparse.Namespace, plan: Plan) -> None:
    """Only a plan in which every peer of the file serves something can be written into it."""
    from fleetchat.cli.confirm import terminal_confirmation
    from fleetchat.config import load
    from fleetchat.config.user_file import write_layers

    config = load(options.fleet, confirm=terminal_confirmation())
    serving = [number for number, peer in enumerate(config.fleet.peers) if not peer.spare]
    if len(plan.stages) < len(serving):
        raise InputError(
            "the plan leaves peers out, so it was not written",
            hint="remove those peers with `fleetchat fleet remove`, then plan again",
        )
    layers = {serving[stage.peer]: (stage.first, stage.last) for stage in plan.stages}
    write_layers(config.file, layers)
    print(f"written to {config.file}; {MOVES}")


def _print_json(load: Load, peers: list[PeerFacts], plan: Plan) -> None:
    import json
    from dataclasses import asdict

    from fleetchat.fleet.placement import usable

    document = {
        "model": asdict(load.shape),
        "bits": load.bits,
        "context": load.context,
        "conversations": load.conversations,
        "peers": [{**asdict(peer), "memory_usable": usable(peer)} for peer in peers],
        "stages": [asdict(stage) for stage in plan.stages],
        "tokens_per_s": {
            "one_conversation": plan.one_conversation,
            "together": plan.together(load.conversations),
            "alone": plan.alone,
        },
    }
    print(json.dumps(document, indent=2, ensure_ascii=False))
