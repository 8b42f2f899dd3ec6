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


@dataclass(frozen=True, slots=True)
class Move:
    """Another chain took the place of the one before, which was well: from `resumed` on it has the epoch.

    `began` is when the old chain was left, `prepared` how many seconds the new one took before that.
    """

    stages: str  # as `3 stages (layers 0-9, 10-19, 20-29)`
    epoch: int
    prepared: float
    began: float
    resumed: float
    back: bool = False  # the new chain could not be opened, and the old one serves again

    @property
    def sentence(self) -> str:
        """`The fleet serves with 3 stages (layers 0-9, …) now, as epoch 2; they were ready after 8.1 s.`"""
        if self.back:
            return f"The fleet serves with {self.stages} again, as epoch {self.epoch}."
        ready = f"it was made ready in {self.prepared:.1f} s beside the old one"
        return f"The fleet serves with {self.stages} now, as epoch {self.epoch}; {ready}."

    @property
    def note(self) -> str:
        """For the reader of an answer in whose middle it happened."""
        return f"the fleet moved to {self.stages} in the middle of this answer"


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
