"""The error tree: a type for decisions, a text for people, an exit code for programs."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells its caller."""

    DONE = 0
    FAILED = 1  # failed at run time: a peer lost, no network
    WRONG_INPUT = 2  # wrong usage, configuration or input, also a disk that is too small for what is asked
    INTERRUPTED = 130


class FleetchatError(Exception):
    """Any failure that is explained to a person in one line, with an optional hint line.

    `message` says what is wrong and where; `hint` says what to do about it.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(FleetchatError):
    """Wrong usage, configuration, recipe, model file or prompt."""

    exit_code = ExitCode.WRONG_INPUT


class ConfigError(InputError):
    """A configuration file, environment variable or option has a value that cannot be used."""


class RecipeError(InputError):
    """A recipe is unknown or malformed."""


class SourceError(InputError):
    """A model source is damaged, of an unknown kind, or not what the recipe says."""


class CutRefused(InputError):
    """The model cannot be cut as asked; the message says why."""


class PromptError(InputError):
    """A prompt is empty, or longer than the context."""


class FetchError(FleetchatError):
    """A source could not be fetched: no network, or the registry refused."""


class BuildError(FleetchatError):
    """A build failed at run time: self-check not passed."""


class DiskFull(BuildError):
    """What was asked for does not fit on the disk of the store."""

    exit_code = ExitCode.WRONG_INPUT


class ShardDamaged(FleetchatError):
    """A stored shard is missing or its hash differs; it must be built again."""


class HistoryError(FleetchatError):
    """The chat store cannot be opened, read or written."""


class HistoryUnwritable(HistoryError):
    """The place of the chat store cannot be written: the user must make it writable, or choose another."""

    exit_code = ExitCode.WRONG_INPUT


class FleetError(FleetchatError):
    """The fleet failed at run time."""


class PeerUnreachable(FleetError):
    """A peer did not answer at its address within the connect deadline."""


class PeerRefused(FleetError):
    """A peer answered and refused: wrong build key, too few cells, another version."""

    exit_code = ExitCode.WRONG_INPUT


class ShardMissing(PeerRefused):
    """A peer does not have the shard that it is to serve, or has another or a damaged one."""


class EngineRefused(PeerRefused):
    """A peer does not serve this KV engine, or cannot load the shard with it; another engine may do."""


class CellsRefused(PeerRefused):
    """A stage has too little room left: for KV cells, or for one more shard."""


class AuthenticationFailed(PeerRefused):
    """The two sides do not hold the same key."""


class PeerLost(FleetError):
    """A link to a stage broke, or a stage stopped answering."""


class DrafterFailed(FleetError):
    """A draft model failed in mid-answer: it is dropped, and the answer goes on without it."""


class SliceFailed(FleetError):
    """One slice of one session failed on a stage; other sessions go on.

    `code` is one of the names in `wire.frames.FaultCode`.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class ProtocolError(FleetError):
    """Base of the two kinds of broken protocol."""


class LocalProtocolError(ProtocolError):
    """We tried to do what the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The other side sent what the protocol does not allow; the link must be closed."""
