"""What befell a stage and what is done about it: values, and words for the person at the screen (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """How a stage was lost; also what `ask --json` says."""

    DIED = "died"  # its control link ended without a word
    SILENT = "silent"  # nothing was heard of it for too long
    LEFT = "left"  # it said GOODBYE
    LINK = "link"  # a data link broke, its two ends are alive
    FAULT = "fault"  # it reported that it failed inside
    GARBAGE = "garbage"  # it sent what the protocol does not allow
    UNREACHABLE = "unreachable"  # it did not answer when it was dialled again
    REFUSED = "refused"  # it answered, and does not serve us


class Remedy(StrEnum):
    """What is done about a lost stage."""

    RESTART = "restart"
    REDIAL = "redial"
    SPARE = "spare"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Loss:
    """One stage was lost. Times are those of the trio clock.

    `began` is the last sign of life of a stage that fell silent; else when the first link of the chain broke.
    """

    stage: int
    address: str
    cause: Cause
    began: float
    noticed: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """A loss that was overcome: from `resumed` on the chain has the epoch `epoch`."""

    loss: Loss
    epoch: int
    resumed: float


WHAT_HAPPENED = {
    Cause.DIED: "stopped working",
    Cause.SILENT: "stopped answering",
    Cause.LEFT: "was shut down",
    Cause.LINK: "lost a connection",
    Cause.FAULT: "reported a fault",
    Cause.GARBAGE: "sent data that cannot be right",
    Cause.UNREACHABLE: "cannot be reached",
    Cause.REFUSED: "refused to go on",
}
WHAT_NOW = {
    Remedy.RESTART: "It is being restarted; your answers go on by themselves.",
    Remedy.REDIAL: "Connecting again; your answers go on by themselves.",
    Remedy.SPARE: "A spare computer takes its place; your answers go on by themselves.",
    Remedy.NONE: "Nothing can take its place; what was written so far is kept.",
}


def trouble_sentence(loss: Loss, remedy: Remedy, *, pause: float = 0.0) -> str:
    """`Stage 1 (10.0.0.7:4711) stopped answering. It is being restarted; your answers go on …`"""
    happened = f"Stage {loss.stage} ({loss.address}) {WHAT_HAPPENED[loss.cause]}."
    if pause >= 1 and remedy is not Remedy.NONE:
        return f"{happened} Trying again in {pause:.0f} s; your answers are kept and go on when it is back."
    return f"{happened} {WHAT_NOW[remedy]}"


def recovered_sentence(recovery: Recovery) -> str:
    """`Stage 1 (10.0.0.7:4711) stopped answering; the chain serves again 2.3 s later, as epoch 2.`"""
    loss = recovery.loss
    happened = f"Stage {loss.stage} ({loss.address}) {WHAT_HAPPENED[loss.cause]}"
    after = recovery.resumed - loss.began
    return f"{happened}; the chain serves again {after:.1f} s later, as epoch {recovery.epoch}."


def given_up_sentence(cause: str, attempts: int, seconds: float) -> str:
    """Why nothing more is tried: `cause` is the failure in which it began."""
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return f"{cause}; it did not come back ({tries} in {seconds:.0f} s)"
