"""`fleetchat bench`: paired measurements on this machine, as a table or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from fleetchat.bench.report import Report
    from fleetchat.bench.scale import Plan
    from fleetchat.bench.setting import Setting

Number = TypeVar("Number", int, float)
Measurement = Callable[["Setting"], Awaitable["Report"]]


def register(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the group of commands to the command line."""
    group = commands.add_parser(
        "bench",
        help="measure this machine: chain against openvino_genai, fusion, rollback, throughput, large models",
        description="Measure on this machine. Both sides of a comparison run alternately, so that what "
        "drifts slowly does not count. Other programs should be closed meanwhile.",
    )
    measurements = group.add_subparsers(
        title="measurements", dest="measurement", metavar="MEASUREMENT", required=True
    )
    for add in (_add_parity, _add_fusion, _add_rollback, _add_scale, _add_wan, _add_ui, _add_big):
        add(measurements)


def run(options: argparse.Namespace, measurement: Measurement) -> int:
    """Measure and print. Raises FleetchatError."""
    import trio

    from fleetchat.bench.machine import describe_machine
    from fleetchat.bench.report import as_json, as_table

    machine = describe_machine()
    report = trio.run(measurement, setting_of(options))
    print(as_json(report, machine) if options.json else as_table(report, machine))
    return 0


def setting_of(options: argparse.Namespace) -> Setting:
    """What was asked for. Raises InputError."""
    from fleetchat.bench.pairs import FULL, QUICK
    from fleetchat.bench.setting import Setting, parse_cores
    from fleetchat.cli.output import print_diagnostic
    from fleetchat.paths import store_folder

    return Setting(
        store_root=options.store.absolute() if options.store else store_folder(),
        effort=QUICK if options.quick else FULL,
        cores=parse_cores(options.cores),
        note=print_diagnostic,
        recipe=options.recipe,
        source=options.source,
        precision=options.precision,
    )


def _add_parity(measurements: argparse._SubParsersAction[Any]) -> None:
    def measure(options: argparse.Namespace) -> int:
        from fleetchat.bench.drafter_parity import measure_drafter_parity
        from fleetchat.bench.parity import measure_parity

        return run(options, measure_drafter_parity if options.speculation else measure_parity)

    parser = measurements.add_parser(
        "parity",
        help="a chain of one and of two stages against openvino_genai on the same core",
        description="Is a cut model over TCP as fast as the whole model in one process, and as exact?",
    )
    parser.add_argument(
        "--speculation",
        action="store_true",
        help="instead: every drafter, depth and temperature against no drafts, in exact",
    )
    _add_common(parser)
    parser.set_defaults(run=measure)


def _add_fusion(measurements: argparse._SubParsersAction[Any]) -> None:
    def measure(options: argparse.Namespace) -> int:
        from fleetchat.bench.fusion import measure_fusion

        return run(options, measure_fusion)

    parser = measurements.add_parser(
        "fusion",
        help="decoding with the KV cache inside the attention operation, and without",
        description="What is it worth that a cut stage keeps its KV cache inside the attention operation?",
    )
    _add_common(parser)
    parser.set_defaults(run=measure)


def _add_rollback(measurements: argparse._SubParsersAction[Any]) -> None:
    def measure(options: argparse.Namespace) -> int:
        from fleetchat.bench.rollback import measure_rollback

        return run(options, measure_rollback)

    parser = measurements.add_parser(
        "rollback",
        help="taking back rejected drafts by mask, and by copying the cache",
        description="What does it cost to take rejected drafts back, and what do the dead cells cost after?",
    )
    _add_common(parser)
    parser.set_defaults(run=measure)


def _add_scale(measurements: argparse._SubParsersAction[Any]) -> None:
    def measure(options: argparse.Namespace) -> int:
        from fleetchat.bench.first_token import measure_prefill, measure_second_turn
        from fleetchat.bench.scale import measure_scale
        from fleetchat.errors import InputError

        plan = plan_of(options)
        if options.soak is not None:
            return _soak(options, plan)
        if options.faults:
            raise InputError("--faults goes with --soak")
        if options.prefill is not None:
            return run(options, lambda setting: measure_prefill(setting, plan, options.prefill))
        measure_plan = measure_second_turn if options.turn2 else measure_scale
        return run(options, lambda setting: measure_plan(setting, plan))

    parser = measurements.add_parser(
        "scale",
        help="several conversations at once, with and without speculation, against openvino_genai",
        description="What do several conversations and drafts make of a chain?",
    )
    parser.add_argument("--stages", type=int, metavar="N", default=2, help="stages of the chain (default 2)")
    parser.add_argument("--sessions", type=int, metavar="N", default=2, help="conversations (default 2)")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--prefill", type=int, metavar="N", help="instead: reading a prompt of N tokens, against one stage"
    )
    instead.add_argument(
        "--turn2", action="store_true", help="instead: the first token of a second turn behind a long history"
    )
    instead.add_argument(
        "--soak",
        type=float,
        metavar="SECONDS",
        help="instead: conversations for so long, every reply compared with that of an undisturbed chain",
    )
    parser.add_argument(
        "--faults", type=int, metavar="N", default=0, help="with --soak: peers killed and stopped meanwhile"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", default=0, help="with --soak: which faults, and when (default 0)"
    )
    _add_speculation(parser)
    _add_common(parser)
    parser.set_defaults(run=measure)


def _soak(options: argparse.Namespace, plan: Plan) -> int:
    from fleetchat.bench.fault_soak import SoakPlan, check_soak, measure_soak

    soak = SoakPlan(options.soak, options.faults, options.seed)
    check_soak(soak)
    return run(options, lambda setting: measure_soak(setting, plan, soak))


def _add_wan(measurements: argparse._SubParsersAction[Any]) -> None:
    def measure(options: argparse.Namespace) -> int:
        from fleetchat.bench.wan import STAGES, WanPlan, check_wan_plan, measure_wan

        delays, sessions = (
            numbers("--delay", options.delay, float),
            numbers("--sessions", options.sessions, int),
        )
        options.stages, options.sessions = STAGES, sessions[0]
        asked = WanPlan(plan_of(options), delays, sessions)
        check_wan_plan(asked)
        return run(options, lambda setting: measure_wan(setting, asked))

    parser = measurements.add_parser(
        "wan",
        help="conversations on two stages that are far from each other",
        description="How much of the speed is left when the network is slow, and does the depth of drafts "
        "follow? Relays delay the leg between the two stages and the way back.",
    )
    parser.add_argument(
        "--delay",
        metavar="MS,MS",
        default="50",
        help="one way, in milliseconds; several give a grid (default 50)",
    )
    parser.add_argument(
        "--sessions", metavar="N,N", default="4", help="conversations; several give a grid (default 4)"
    )
    _add_speculation(parser)
    _add_common(parser)
    parser.set_defaults(run=measure)


def _add_ui(measurements: argparse._SubParsersAction[Any]) -> None:
    def measure(options: argparse.Namespace) -> int:
        from fleetchat.bench.ui import measure_ui

        return run(options, measure_ui)

    parser = measurements.add_parser(
        "ui",
        help="what the screen costs: echo of keys, throughput, first paint, processor, memory",
        description="Does the screen hold up the chats, and do the chats hold up the keys? The chat runs in "
        "a terminal of its own, four chats write, the panel is shown.",
    )
    _add_common(parser)
    parser.set_defaults(run=measure)


def _add_big(measurements: argparse._SubParsersAction[Any]) -> None:
    def measure(options: argparse.Namespace) -> int:
        from fleetchat.bench.big import FOLDER, measure_big
        from fleetchat.bench.big_plan import plan_for
        from fleetchat.paths import cache_folder

        plan = plan_for(
            options.model,
            options.stages,
            options.one_by_one,
            (options.folder.absolute() if options.folder else cache_folder()) / FOLDER,
            keep=options.keep,
            quick=options.quick,
            engine=options.kv,
            every_stage=options.every_stage,
            prompts=numbers("--prompts", options.prompts, int) if options.prompts else None,
            drafter=options.drafter,
        )
        return run(options, lambda setting: measure_big(setting, plan))

    parser = measurements.add_parser(
        "big",
        help="models of 8B and 70B, made up with random weights: sizes, memory, loading, speed",
        description="What does a large model take on this machine? It is made up with random INT4 weights: "
        "nothing is fetched, and it speaks nonsense. One that is too large is measured stage by stage, and "
        "the speed of the whole chain is estimated.",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="the shape (default llama-3.1-8b; with --quick llama-3.2-1b)"
    )
    parser.add_argument(
        "--stages", type=int, metavar="N", help="stages (default 2, or as many as 8 GiB ask for)"
    )
    parser.add_argument("--one-by-one", action="store_true", help="one stage at a time, as for llama-3.3-70b")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where to make it (default: the cache folder)"
    )
    parser.add_argument("--keep", action="store_true", help="leave it there for the next run")
    parser.add_argument(
        "--every-stage", action="store_true", help="one by one: also stages that have the shape of another"
    )
    parser.add_argument(
        "--kv",
        choices=("masked", "paged"),
        help="how stages keep the KV cache (default: one after the other)",
    )
    parser.add_argument(
        "--drafter",
        choices=("none", "model", "ngram+model"),
        default="model",
        help="what guesses tokens ahead in the end (default: a made-up model of llama-3.2-1b's shape)",
    )
    parser.add_argument(
        "--prompts", metavar="N,N", help="lengths of the prompts in tokens (default 200,2000; --quick 64,512)"
    )
    _add_effort(parser)
    parser.set_defaults(run=measure, recipe="", source=None, store=None)


def numbers(option: str, text: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    """What an option says that takes numbers with commas between them. Raises InputError."""
    from fleetchat.errors import InputError

    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        whole = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{option} takes {whole} with commas between them, not {text!r}") from None


def _add_speculation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drafter",
        choices=("none", "ngram", "model", "ngram+model", "wrong"),
        default="none",
        help="what guesses tokens ahead (default none); wrong: a draft model that is never right",
    )
    parser.add_argument("--draft-model", type=Path, metavar="PATH", help="folder of the draft model")
    parser.add_argument(
        "--draft-depth",
        metavar="K",
        default="adaptive",
        help="drafts a round, or adaptive (default)",
    )
    parser.add_argument(
        "--kv", choices=("masked", "paged"), default="masked", help="how stages keep the KV cache"
    )
    parser.add_argument(
        "--workload", choices=("chat", "rewrite", "code"), default="chat", help="what is asked (default chat)"
    )


def plan_of(options: argparse.Namespace) -> Plan:
    """The chain that `bench scale` measures. Raises InputError."""
    from fleetchat.bench.scale import Plan, check_plan
    from fleetchat.errors import InputError

    depth = None
    if options.draft_depth != "adaptive":
        if not options.draft_depth.isdecimal():
            raise InputError(f"--draft-depth is adaptive or a number, not {options.draft_depth!r}")
        depth = int(options.draft_depth)
    plan = Plan(
        stages=options.stages,
        sessions=options.sessions,
        drafter=options.drafter,
        depth=depth,
        kv=options.kv,
        workload=options.workload,
        draft_model=options.draft_model,
    )
    check_plan(plan)
    return plan


def _add_common(parser: argparse.ArgumentParser) -> None:
    _add_effort(parser)
    parser.add_argument(
        "--recipe", metavar="NAME", default="smollm2-135m", help="the model: a recipe's name or file"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="where the model is; nothing is fetched then"
    )
    parser.add_argument("--store", type=Path, metavar="DIR", help="folder of the shards")


def _add_effort(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="3 pairs of 2 s instead of 9 of 5 s: about a minute, less exact",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout instead of a table")
    parser.add_argument(
        "--cores",
        metavar="N,N",
        help="the cores that stages are pinned to, one a stage (default: all in order)",
    )
    parser.add_argument(
        "--precision", choices=("fast", "exact"), default="fast", help="of both sides (default fast)"
    )
