"""What a fleet is opened with, and what it decides from that (pure)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetchat.cutter.manifest import Manifest
from fleetchat.errors import InputError
from fleetchat.fleet.deadlines import Deadlines
from fleetchat.ids import Address, Rollback
from fleetchat.paths import config_folder


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """A peer named in the configuration. `address` None starts an embedded stage ("local")."""

    address: Address | None
    name: str = ""
    device: str = "CPU"  # of an embedded stage; a peer elsewhere states its own

    @property
    def title(self) -> str:
        return self.name or (str(self.address) if self.address else "local")


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """One entry of `peers` a stage. `key` None takes a one-time key (all stages embedded)."""

    manifest: Manifest
    store_root: Path
    peers: tuple[PeerSpec, ...]
    precision: str  # "exact" | "fast"
    kv: str  # "masked" | "paged" | "auto"
    context: int  # positions
    threads: int | None = None  # a stage; None = available cores // stages
    cores: tuple[int, ...] | None = None  # one core a stage, for measurements
    key: bytes | None = None
    kv_cells: int | None = None
    drafter: str = "none"  # "none" | "ngram" | "model" | "ngram+model"
    drafter_asked: bool = True  # the user named it: where it cannot be used, that is an error
    draft_model: Path | None = None  # folder of a draft model's IR
    draft_depth: int | None = None  # drafts a round; None = adaptive
    max_draft: int = 8  # the most that adaptive takes
    trace_file: Path | None = None  # what every stage did, in Chrome's trace event format
    connect_deadline: float = 20.0  # seconds
    spares: tuple[PeerSpec, ...] = ()  # take the place of a stage that is lost; each has an address
    deadlines: Deadlines = field(default_factory=Deadlines)
    named_in: Path | None = None  # the file that names the peers


def candidates(options: FleetOptions) -> list[tuple[FleetOptions, str]]:
    """What to open the chain with, best first, and the reason to tell.

    Where the paged engine can be had it is at least as fast with one session (1.0 to 1.1 times masked), and
    several sessions share one pass; what is left is the masked one.
    """
    if options.kv != "auto":
        return [(options, "asked for")]
    if options.manifest.rollback is Rollback.RESTART:
        return [(replace(options, kv="masked"), "the model's recurrent states have no pages")]
    reasons = {"paged": "the faster engine, and it passed its self-check on every stage", "masked": ""}
    return [(replace(options, kv=engine), reason) for engine, reason in reasons.items()]


def absence_hint(address: Address, file: Path | None) -> str:
    """What to do about a peer of the configuration that does not answer."""
    if file is None:
        return f"is `fleetchat peer` running at {address}?"
    option = "" if file == config_folder() / "fleet.toml" else f" --fleet {file}"
    return (
        f"start `fleetchat peer` there, let its port through the firewall, or take it out of {file}: "
        f"`fleetchat fleet remove {address}{option}`"
    )


def embedded_peers(stages: int) -> tuple[PeerSpec, ...]:
    return (PeerSpec(address=None),) * stages


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_per_stage(options: FleetOptions, cores: int) -> int:
    """max(1, cores // embedded stages), or what the user set, as far as there are cores."""
    if options.threads is not None:
        return min(options.threads, cores)
    if options.cores is not None:
        return 1
    embedded = sum(1 for peer in options.peers if peer.address is None)
    return max(1, cores // max(1, embedded))


def threads_note(options: FleetOptions, cores: int) -> str:
    """What to say of more threads than the machine has cores: they would only wait for each other."""
    if options.threads is None or options.threads <= cores:
        return ""
    if all(peer.address is not None for peer in options.peers):
        return ""
    return (
        f"threads in [fleet] is {options.threads}, this machine has {cores} core{'' if cores == 1 else 's'}: "
        f"{cores} {'is' if cores == 1 else 'are'} used"
    )


def require_draft_model(drafter: str, draft_model: Path | None) -> None:
    """Raises InputError when a drafter that needs a model has none."""
    if "model" in drafter and draft_model is None:
        raise InputError(
            f"the drafter {drafter} needs a draft model",
            hint="name its folder with --draft-model or [speculation] draft_model, or use --drafter ngram",
        )


def load_deadline(shard_bytes: int) -> float:
    """Seconds that a stage may take to load: a minute, and what its size adds."""
    return 60.0 + loading_allowance(shard_bytes)


def loading_allowance(shard_bytes: int) -> float:
    """Seconds that the size of a shard adds to a deadline: a minute for each GiB.

    OpenVINO repacks 4-bit weights at 15 to 30 s a GiB on two cores that two stages share; a busy or slow
    machine, and a cold disk, take several times as long.
    """
    return 60.0 * shard_bytes / 2**30
