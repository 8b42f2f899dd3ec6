"""`fleet.toml`, environment and options as one frozen value. The shipped `fleet.toml` documents every key."""

from fleetchat.config.address import parse_address
from fleetchat.config.load import Confirm, load
from fleetchat.config.peers import PeerSettings
from fleetchat.config.settings import (
    ChatSettings,
    Config,
    FleetSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
    UiSettings,
)

__all__ = [
    "ChatSettings",
    "Config",
    "Confirm",
    "FleetSettings",
    "ModelSettings",
    "PeerSettings",
    "SamplingSettings",
    "SpeculationSettings",
    "UiSettings",
    "load",
    "parse_address",
]
