"""`fleetchat peer`: serve shards to the chats that hold the key."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetchat.cli.output import print_diagnostic
from fleetchat.errors import ConfigError, FleetchatError, InputError

if TYPE_CHECKING:
    from fleetchat.ids import Address
    from fleetchat.mdns import Announcement
    from fleetchat.peer.serve import PeerOptions

DEFAULT_LISTEN = "127.0.0.1:7077"
DEVICE = re.compile(r"(CPU|GPU|NPU)(\.[0-9]{1,2})?", re.ASCII)
SHOWN_ADDRESSES = 6  # beyond the first; a machine with containers has dozens


def register(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "peer",
        help="serve shards of models to chats on this or other machines",
        description="Serve shards to the chats that hold the key. Without --key-file the key is fleet.key "
        "in the configuration folder, made at the first start, and only this machine is listened to.",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        action="append",
        help=f"where to listen (default {DEFAULT_LISTEN}; 0.0.0.0:PORT for all IPv4 networks, [::]:PORT for "
        "IPv6); may be given several times",
    )
    parser.add_argument("--key-file", metavar="FILE", type=Path, help="the fleet's shared key")
    parser.add_argument(
        "--tls", action="store_true", help="encrypt all links with the certificate beside the key file (.pem)"
    )
    parser.add_argument("--certificate", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--device", default="CPU", help="OpenVINO device: CPU (default), GPU or NPU; only CPU is tested"
    )
    parser.add_argument(
        "--threads", metavar="N", type=int, help="inference threads (default: the cores of this process)"
    )
    parser.add_argument(
        "--kv-cells", metavar="N", type=int, help="KV cells for each stage (default: from the free memory)"
    )
    parser.add_argument(
        "--advertise", metavar="HOST", help="the name or address that others are told to use (default: found)"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="do not announce this peer on the local network (mDNS)"
    )
    parser.add_argument(
        "--pause-on-battery", action="store_true", help="serve nobody while this machine runs on its battery"
    )
    parser.add_argument(
        "--normal-priority", action="store_true", help="do not give way to the other programs of this machine"
    )
    parser.add_argument("--store", metavar="DIR", type=Path, help="where the built shards are")
    parser.add_argument("--embedded", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--log", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cores", metavar="N,N", help=argparse.SUPPRESS)
    parser.add_argument("--stages-here", metavar="N", type=int, default=1, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal ends it."""
    for name in ("threads", "kv_cells"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if DEVICE.fullmatch(options.device) is None:
        raise InputError(f"--device {options.device}: devices are CPU, GPU and NPU, with several also GPU.1")
    return _run_embedded(options) if options.embedded else _run_standing(options)


def _require_device(options: argparse.Namespace) -> None:
    """Say at the start, not when a chat comes, that there is no such device. Raises InputError."""
    if options.device == "CPU":
        return
    from fleetchat.doctor.devices import probe
    from fleetchat.engine.device import is_there, missing_device

    probed = probe(options.threads or _cores_of_process())
    found = [device.name for device in probed.devices]
    if not is_there(options.device, found):
        text, hint = missing_device(options.device, found)
        raise InputError(text, hint=hint)
    broken = next((one for one in probed.devices if one.name == options.device and one.error), None)
    if broken is not None:
        raise InputError(f"the device {broken.name} does not work: {broken.error}", hint="use --device CPU")


def _run_standing(options: argparse.Namespace) -> int:
    """A peer that a person started."""
    from fleetchat.certificates import certificate_file, check_certificate
    from fleetchat.config.address import parse_address
    from fleetchat.keys import FleetKey
    from fleetchat.peer.priority import lower_priority

    _require_device(options)
    addresses = [parse_address(text, lowest_port=0) for text in options.listen or [DEFAULT_LISTEN]]
    key, key_file = find_key(addresses, options.key_file)
    if options.tls:
        key = FleetKey(key, check_certificate(certificate_file(key_file)))
    _log_to_stderr()
    _pin(options)
    cores = _cores_of_process()
    if (options.threads or 0) > cores:
        print_diagnostic(f"note: --threads {options.threads} is more than the {cores} that this machine has")
    if not options.normal_priority:
        lower_priority()

    announced: list[Announcement] = []

    def announce(bound: Address) -> None:
        for line in announcement(bound, key_file, options.advertise):
            print(line, flush=True)
        if not options.quiet:
            announced.extend(_announced(bound))

    try:
        return _serve(addresses, _peer_options(options, key), options, announce, ctrl_c=True)
    finally:
        for one in announced:
            one.close()


def _announced(bound: Address) -> list[Announcement]:
    """On the local network, unless only this machine can be meant, or the package is not there."""
    from fleetchat.mdns import Announcement, is_available
    from fleetchat.peer.interfaces import is_loopback, reachable_hosts

    if is_loopback(bound.host) or not is_available():
        return []
    return [Announcement([one.host for one in reachable_hosts(bound.host)], bound.port)]


def _run_embedded(options: argparse.Namespace) -> int:
    """A stage of the chat process that started this one; see `fleetchat/peer/embedded.py`."""
    import signal

    from fleetchat.ids import Address
    from fleetchat.keys import FleetKey
    from fleetchat.peer import embedded

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.log is not None:
        embedded.log_to(options.log)
    try:
        _require_device(options)
        _pin(options)
        key = FleetKey(embedded.read_key_line(sys.stdin), options.certificate)
        embedded.end_with_parent(sys.stdin)

        def announce(bound: Address) -> None:
            embedded.announce(sys.stdout, port=bound.port)

        address = Address("127.0.0.1", 0)
        return _serve([address], _peer_options(options, key), options, announce, ctrl_c=False)
    except FleetchatError as error:
        embedded.announce_failure(sys.stdout, error)
        raise


def _serve(
    addresses: Sequence[Address],
    peer: PeerOptions,
    options: argparse.Namespace,
    announce: Callable[[Address], None],
    *,
    ctrl_c: bool,
) -> int:
    import signal

    from fleetchat.cutter.received import PeerStore
    from fleetchat.paths import store_folder
    from fleetchat.peer.engines import create_engine
    from fleetchat.peer.process import inference_runs, run_peer

    store = PeerStore((options.store or store_folder()).absolute())
    code = run_peer(
        addresses[0],
        peer,
        store=store,
        engine_factory=create_engine,
        on_listening=announce,
        more_addresses=addresses[1:],
        signals=(signal.SIGINT, signal.SIGTERM) if ctrl_c else (signal.SIGTERM,),
    )
    if inference_runs():  # a long prefill: the interpreter must not be taken down under it
        sys.stdout.flush()
        os._exit(code)
    return int(code)


def _peer_options(options: argparse.Namespace, key: bytes) -> PeerOptions:
    from fleetchat.peer.battery import on_battery
    from fleetchat.peer.engines import time_layer as time_layer_in_process
    from fleetchat.peer.serve import PeerOptions

    cores = _cores_of_process()
    threads = min(options.threads or cores, cores)
    pause = on_battery if options.pause_on_battery else None
    return PeerOptions(
        key=key,
        device=options.device,
        threads=threads,
        cells=options.kv_cells,
        stages_here=options.stages_here,
        time_layer=partial(time_layer_in_process, device=options.device, threads=threads),
        pause=pause,
    )


def find_key(addresses: Sequence[Address], key_file: Path | None) -> tuple[bytes, Path]:
    """The shared key and its file. Raises InputError: beyond this machine a key file must be named."""
    from fleetchat.keys import KEY_FILE_NAME, load_or_create_key, read_key
    from fleetchat.paths import config_folder
    from fleetchat.peer.interfaces import is_loopback

    if key_file is not None:
        return read_key(key_file), key_file.absolute()
    for address in addresses:
        if not is_loopback(address.host):
            raise InputError(
                f"{address} can be reached from other machines: name the fleet's key with --key-file",
                hint="`fleetchat fleet key FILE` makes one; every machine of the fleet gets the same file",
            )
    path = config_folder() / KEY_FILE_NAME
    return load_or_create_key(path), path


def announcement(bound: Address, key_file: Path, advertised: str | None = None) -> list[str]:
    """Where the peer listens, under which addresses others reach it, and what to type on the chat machine.

    `advertised` is a host that the owner names: behind a router this machine does not know it.
    """
    from fleetchat.ids import Address
    from fleetchat.peer.interfaces import Reachable, is_loopback, reachable_hosts

    lines = [f"listening on {bound}"]
    hosts = [Reachable(advertised)] if advertised else reachable_hosts(bound.host)
    first = Address(hosts[0].host, bound.port)
    if is_loopback(first.host):
        return [
            *lines,
            f"only this machine reaches it; the key is {key_file}",
            "to use it, type:",
            f"  fleetchat fleet add {first}",
        ]
    if len(hosts) > 1:
        others = ", ".join(
            f"{Address(one.host, bound.port)} ({one.interface})" for one in hosts[1 : 1 + SHOWN_ADDRESSES]
        )
        lines.append(f"this machine is {first} ({hosts[0].interface}); it has other addresses too: {others}")
    else:
        lines.append(f"other machines reach it at {first}")
    return [
        *lines,
        f"the key is {key_file}; every machine of the fleet needs a copy of this file",
        "to use this peer, type on the chat machine:",
        f"  fleetchat fleet add {first}",
    ]


def _pin(options: argparse.Namespace) -> None:
    from fleetchat.peer.embedded import pin_to

    if options.cores is None:
        return
    try:
        cores = frozenset(int(number) for number in options.cores.split(","))
        pin_to(cores)
    except (ValueError, OSError):
        raise ConfigError(f"--cores {options.cores}: not a list of cores of this machine") from None


def _cores_of_process() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _log_to_stderr() -> None:
    """Who connects, who is refused and why: one line each, never a word of a chat."""
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
