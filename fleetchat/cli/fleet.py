"""`fleetchat fleet`: the key of a fleet, and who is in it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetchat.cli import fleet_discover, fleet_plan
from fleetchat.cli.output import print_diagnostic
from fleetchat.errors import ConfigError, InputError

if TYPE_CHECKING:
    from fleetchat.config import PeerSettings

DEFAULT_PORT = 7077


def register(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the group of commands to the command line."""
    group = commands.add_parser(
        "fleet",
        help="the machines that serve the stages: key, add, remove, list, plan, discover",
        description="Make the key of a fleet, and say which machines are in it.",
    )
    actions = group.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    _register_key(actions)
    _register_add(actions)
    _register_remove(actions)
    _register_list(actions)
    fleet_plan.register(actions)
    fleet_discover.register(actions)


def _register_key(actions: argparse._SubParsersAction[Any]) -> None:
    parser = actions.add_parser(
        "key",
        help="make the key that all machines of a fleet share",
        description="Make the key of a fleet: a file that only you can read. Every machine of the fleet gets "
        "a copy. The key itself is never shown.",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="where to put it (default: fleet.key in the configuration folder, where the chat looks for it)",
    )
    parser.add_argument(
        "--tls",
        action="store_true",
        help="also make a certificate beside it, with which all links are encrypted (needs cryptography)",
    )
    parser.set_defaults(run=run_key)


def _register_add(actions: argparse._SubParsersAction[Any]) -> None:
    parser = actions.add_parser(
        "add",
        help="let a peer serve a stage",
        description="Write a peer into your fleet.toml, behind those that are there. Everything else in the "
        "file stays as it is, but for layers that were written for the other peers. A chat that runs moves "
        "to the new fleet by itself; its answers go on. The peer is greeted: one that does not answer is "
        "written all the same, with a note.",
    )
    parser.add_argument("address", metavar="HOST:PORT", help="where the peer listens (it prints the line)")
    parser.add_argument("--name", metavar="NAME", default="", help="what the fleet panel calls it")
    parser.add_argument("--spare", action="store_true", help="it waits until another peer is lost")
    _add_file(parser)
    parser.set_defaults(run=run_add)


def _register_remove(actions: argparse._SubParsersAction[Any]) -> None:
    parser = actions.add_parser(
        "remove",
        help="let a peer go",
        description="Take a peer out of your fleet.toml. A chat that runs moves to those that are left by "
        "itself; its answers go on. Stop the peer when it has.",
    )
    parser.add_argument("peer", metavar="HOST:PORT|NAME", help="its address, or the name you gave it")
    _add_file(parser)
    parser.set_defaults(run=run_remove)


def _register_list(actions: argparse._SubParsersAction[Any]) -> None:
    parser = actions.add_parser(
        "list",
        aliases=["show"],
        help="who is in the fleet",
        description="List the peers of your fleet.toml in the order of the chain. Nobody is asked anything; "
        "`fleetchat fleet discover` and `fleetchat doctor` ask.",
    )
    _add_file(parser)
    parser.set_defaults(run=run_list)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fleet",
        metavar="FILE",
        type=Path,
        help="this file (default: fleet.toml in the configuration folder)",
    )


def run_key(options: argparse.Namespace) -> int:
    """Make the key file, or the certificate for one that is there, and say where it belongs."""
    from fleetchat.certificates import certificate_file, new_certificate
    from fleetchat.keys import create_key, create_private, read_key

    path = _absolute(options.file) if options.file else _default_key()
    if options.file and not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", hint="make it first, or name another file")
    made = [path]
    certificate = certificate_file(path)
    if not options.tls:
        create_key(path)
    elif certificate.exists():
        raise InputError(f"{certificate} is there already, and was not changed")
    else:
        content = new_certificate()
        if path.exists():
            read_key(path)  # it must be a key
            made = []
        else:
            create_key(path)
        create_private(certificate, content)
        made.append(certificate)
    for one in made:
        print(one)
    files = "these files" if len(made) > 1 else "this file"
    print_diagnostic(f"Copy {files} to every machine of the fleet (scp keeps them yours), and start there:")
    tls = " --tls" if options.tls else ""
    print_diagnostic(f"  fleetchat peer --listen 0.0.0.0:{DEFAULT_PORT} --key-file FILE{tls}")
    if path != _default_key():
        print_diagnostic(f"The chat looks for it at {_default_key()}, or where key_file under [fleet] says.")
    if options.tls:
        print_diagnostic("For the chat, set tls = true under [fleet] in its fleet.toml.")
    return 0


def run_add(options: argparse.Namespace) -> int:
    """Add a peer; say what the fleet is then, and what keeps it from being used."""
    from fleetchat.config.address import parse_address
    from fleetchat.config.user_file import add_to_file

    if options.address != "local":
        parse_address(options.address)
    path = _fleet_file(options)
    cut = _has_layers(path)
    peers = add_to_file(path, options.address, name=options.name, spare=options.spare)
    absence = _absence(path, options.address)
    print(f"added {options.address} to {path}: {_count(peers)}")
    _tell_cut(cut, path)
    _warn(path, peers)
    if absence:
        print_diagnostic(f"note: {absence}")
    return 0


def _absence(path: Path, address: str) -> str:
    """That a peer that was written does not answer now, and what to do; nothing when it does."""
    import trio

    from fleetchat.config import load
    from fleetchat.config.address import parse_address
    from fleetchat.fleet.configured import key_here
    from fleetchat.fleet.greeting import greet
    from fleetchat.fleet.options import absence_hint

    if address == "local":
        return ""
    parsed = parse_address(address)
    try:
        key = key_here(load(path))
    except ConfigError:
        return ""  # nothing can be asked with this file yet: it names spares only, or its key is missing
    greeting = trio.run(greet, (parsed,), key)
    if greeting.answers or (key is None and not greeting.silent):
        return ""  # that there is no key here is told anyway, and made for programs of one machine
    return f"it was added, but {greeting.reason}; {absence_hint(parsed, path)}"


def run_remove(options: argparse.Namespace) -> int:
    """Remove a peer; say what is left."""
    from fleetchat.config.user_file import remove_from_file, title

    path = _fleet_file(options)
    cut = _has_layers(path)
    removed, left = remove_from_file(path, options.peer)
    print(f"removed {title(removed)} from {path}: {_count(left)}")
    _tell_cut(cut, path)
    return 0


def run_list(options: argparse.Namespace) -> int:
    """One line a peer."""
    from fleetchat.config.user_file import peers_of_file, title

    path = _fleet_file(options)
    peers = peers_of_file(path)
    stage = 0
    for peer in peers:
        role = "spare" if peer.spare else f"stage {stage}"
        stage += not peer.spare
        layers = f"layers {peer.layers[0]}-{peer.layers[1]}" if peer.layers else ""
        print("  ".join(word for word in (f"{role:8}", title(peer), peer.name, layers) if word))
    if not peers:
        print_diagnostic(f"{path} names no peers; without any, all stages run on this machine")
    _warn(path, peers)
    return 0


def _warn(path: Path, peers: tuple[PeerSettings, ...]) -> None:
    """What the chat would do with this file that its reader may not expect."""
    from fleetchat.config.files import read_toml
    from fleetchat.config.load import FILE_NAME, mode_in
    from fleetchat.paths import config_folder
    from fleetchat.peer.interfaces import is_loopback

    if peers and mode_in(read_toml(path)) == "embedded":
        print_diagnostic(f'note: {path} sets mode = "embedded", so its peers are not used')
    own, here = config_folder() / FILE_NAME, Path.cwd() / FILE_NAME
    if path != own:
        print_diagnostic(f"note: the chat uses this file when it is told: fleetchat --fleet {path}")
    elif here.is_file() and not (own.exists() and own.samefile(here)):
        print_diagnostic(f"note: in this folder the chat uses {here} instead")
    # Between programs of one machine, the first `fleetchat peer` makes the key.
    elsewhere = any(peer.address is not None and not is_loopback(peer.address.host) for peer in peers)
    if path == own and elsewhere and not _default_key().exists():
        print_diagnostic(f"note: there is no key at {_default_key()}: copy it, or run `fleetchat fleet key`")


def _has_layers(path: Path) -> bool:
    from fleetchat.config.user_file import peers_of_file

    return any(peer.layers is not None for peer in peers_of_file(path))


def _tell_cut(before: bool, path: Path) -> None:
    if before and not _has_layers(path):
        print_diagnostic(
            "note: the layers in it were written for the peers of before and were taken out; "
            "`fleetchat fleet plan --write` writes new ones"
        )


def _count(peers: tuple[PeerSettings, ...]) -> str:
    serving = sum(not peer.spare for peer in peers)
    spare = len(peers) - serving
    text = f"{serving} stage{'' if serving == 1 else 's'}"
    return f"{text}, {spare} spare" if spare else text


def _fleet_file(options: argparse.Namespace) -> Path:
    from fleetchat.config.load import FILE_NAME
    from fleetchat.paths import config_folder

    return _absolute(options.fleet) if options.fleet else config_folder() / FILE_NAME


def _default_key() -> Path:
    from fleetchat.keys import KEY_FILE_NAME
    from fleetchat.paths import config_folder

    return config_folder() / KEY_FILE_NAME


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()
