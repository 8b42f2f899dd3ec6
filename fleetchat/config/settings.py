"""The settings as frozen values.

Defaults are in the shipped `fleet.toml`; a field that may be None is not set there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetchat.config.kinds import (
    Choice,
    Depth,
    FilePath,
    Flag,
    Integer,
    Kind,
    Number,
    Text,
    Texts,
    TextTable,
)
from fleetchat.config.peers import Peers, PeerSettings

HIGHEST_SEED = 2**63 - 1


def _required(kind: Kind, *, option: str | None = None) -> Any:
    return field(metadata={"kind": kind, "option": option})


def _optional(kind: Kind, *, option: str | None = None) -> Any:
    return field(default=None, metadata={"kind": kind, "option": option})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    recipe: str = _required(Text())
    """Name of a shipped or own recipe, or the path of a recipe file."""
    context: int | None = _optional(Integer(16))
    """Longest conversation in tokens, prompt and replies; None = 2048, or less as the recipe says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    mode: str = _required(Choice(("embedded", "peers")))
    """Whether the stages run in processes of the chat, or on the named peers."""
    stages: int = _required(Integer(1, 256))
    """Number of stages; with `mode = "peers"` the number of peers that are not spare."""
    kv: str = _required(Choice(("auto", "masked", "paged")))
    """How a stage keeps the KV cache."""
    kv_cells: int | None = _optional(Integer(1))
    """KV cells that an embedded stage may hold; None = from the free memory."""
    precision: str = _required(Choice(("fast", "exact")))
    """`exact` gives the same text for the same seed on every chain; `fast` is what measures fastest."""
    threads: int | None = _optional(Integer(1, 1024))
    """Inference threads of an embedded stage; None = available cores // stages."""
    key_file: Path | None = _optional(FilePath())
    """The key shared with the peers; None = `fleet.key` in the configuration folder."""
    tls: bool = _required(Flag())
    """Whether the links to peers are encrypted, with the certificate beside the key file."""
    peers: tuple[PeerSettings, ...] = field(default=(), metadata={"kind": Peers(), "option": None})
    """The chain in order; spare peers may stand anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationSettings:
    drafter: str | None = _optional(Choice(("none", "ngram", "model", "ngram+model")))
    """What guesses tokens ahead; None = ngram+model where there is a draft model, else ngram."""
    draft_model: Path | None = _optional(FilePath())
    """Folder of the draft model's IR; None = the recipe's, if it names one."""
    depth: int | str = _required(Depth(), option="--draft-depth")
    """Drafts a round: a number, or "adaptive"."""
    max_draft: int = _required(Integer(1, 64))
    """The most that "adaptive" takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """None = as the recipe says, or, where it says nothing, the value in brackets."""

    temperature: float | None = _optional(Number(0, 100))
    """0 always takes the likeliest token [1]."""
    top_p: float | None = _optional(Number(0, 1, above=True))
    """Draw among the likeliest tokens that together have this probability [1]."""
    top_k: int | None = _optional(Integer(0))
    """Draw among this many tokens; 0 = among all [0]."""
    repetition_penalty: float | None = _optional(Number(0, 100, above=True))
    """Above 1 makes tokens of this reply less likely to come again [1]."""
    seed: int | None = _optional(Integer(0, HIGHEST_SEED))
    """Turn t of a chat takes seed + t; None = a random one for every reply."""
    max_tokens: int = _required(Integer(1))
    """The longest reply."""
    stop: tuple[str, ...] = _required(Texts())
    """A reply ends before one of these texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    system: str | None = _optional(Text())
    """The system prompt; None = what the model's own chat template says."""
    overflow: str = _required(Choice(("refuse", "drop-oldest")))
    """What happens when a conversation outgrows the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UiSettings:
    theme: str = _required(Text())
    """Name of a theme."""
    panel: bool = _required(Flag())
    """Whether the fleet panel is shown."""
    refresh_hz: float = _required(Number(1, 10))
    """How often the panel is drawn anew, times a second."""
    keys: Mapping[str, str] = field(default_factory=dict, metadata={"kind": TextTable(), "option": None})
    """Keys of commands by their names; clashes are told when the chat starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be set. `file` is the configuration file in use.

    `recipe_place` says in words where the recipe is named: a recipe is looked for after all was read.
    """

    model: ModelSettings
    fleet: FleetSettings
    speculation: SpeculationSettings
    sampling: SamplingSettings
    chat: ChatSettings
    ui: UiSettings
    file: Path
    recipe_place: str = ""


TABLES: dict[str, type[Any]] = {
    "model": ModelSettings,
    "fleet": FleetSettings,
    "speculation": SpeculationSettings,
    "sampling": SamplingSettings,
    "chat": ChatSettings,
    "ui": UiSettings,
}
