"""`fleetchat fleet discover`: which peers are there, which of them answer, and why the others do not."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetchat.cli.output import print_diagnostic
from fleetchat.errors import ExitCode, InputError

if TYPE_CHECKING:
    from fleetchat.fleet.greeting import Greeting
    from fleetchat.mdns import Found

SECONDS = 3.0


def register(actions: argparse._SubParsersAction[Any]) -> None:
    """Add the action to the group."""
    parser = actions.add_parser(
        "discover",
        help="look for peers on the local network, and greet those that you added",
        description="Look for peers that announce themselves on the local network (mDNS), greet them and "
        "those of your fleet.toml, and say which answer, which do not, and why. Exit code 1: one of yours "
        "does not answer.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="N",
        help=f"how long to listen (default {SECONDS:g})",
    )
    parser.add_argument("--fleet", type=Path, metavar="FILE", help="configuration file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a line a peer, yours first."""
    import trio

    from fleetchat import mdns
    from fleetchat.cli.confirm import terminal_confirmation
    from fleetchat.config import load
    from fleetchat.fleet.configured import key_here
    from fleetchat.fleet.greeting import greet_all

    if not 0 < options.seconds <= 60:
        raise InputError(f"--seconds must be above 0 and at most 60, not {options.seconds:g}")
    config = load(options.fleet, confirm=terminal_confirmation())
    own = [peer for peer in config.fleet.peers if peer.address is not None]
    found: list[Found] = []
    if mdns.is_available() or not own:
        print_diagnostic(f"listening for {options.seconds:g} s")
        found = mdns.browse(options.seconds)
    else:
        print_diagnostic("the package zeroconf is missing, so only your own peers are looked at")
        print_diagnostic("hint: python -m pip install 'fleetchat[discover]'")
    known = {peer.address for peer in own}
    new = [one for one in found if one.addresses and not known.intersection(one.addresses)]
    addresses = [*([peer.address] for peer in own if peer.address), *(one.addresses for one in new)]
    greetings = trio.run(greet_all, addresses, key_here(config))
    for peer, greeting in zip(own, greetings, strict=False):
        _print(peer.name or "-", greeting)
    for one, greeting in zip(new, greetings[len(own) :], strict=True):
        _print(one.name or "-", greeting)
        if greeting.answers:
            name = f" --name {one.name}" if one.name else ""
            print(f"    to use it: fleetchat fleet add {greeting.address}{name}")
    if not greetings:
        print_diagnostic(
            "no peer announced itself; multicast may be blocked: `fleetchat fleet add HOST:PORT`"
        )
    answered = all(greeting.answers for greeting in greetings[: len(own)])
    return ExitCode.DONE if answered else ExitCode.FAILED


def _print(name: str, greeting: Greeting) -> None:
    print(f"{greeting.address!s:24}  {name:12}  {greeting.text}")
    if greeting.hint:
        print_diagnostic(f"hint: {greeting.hint}")
