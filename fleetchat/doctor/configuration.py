"""The configuration: which file is in use, and what it says."""

from __future__ import annotations

from collections.abc import Mapping

from fleetchat import paths
from fleetchat.config import Config
from fleetchat.doctor.finding import Finding, ok

NAME = "config"
FOLDERS = {"FLEETCHAT_CONFIG_DIR", "FLEETCHAT_CACHE_DIR", "FLEETCHAT_STATE_DIR"}


def describe_configuration(config: Config, environment: Mapping[str, str]) -> Finding:
    """What is in force; reading it has succeeded."""
    own = paths.config_folder() / "fleet.toml"
    shipped = config.file.resolve() == paths.shipped("fleet.toml").resolve()
    file = f"the shipped defaults, {config.file}" if shipped else f"{config.file}"
    stages = f"{config.fleet.stages} stage{'' if config.fleet.stages == 1 else 's'}"
    where = "on this machine" if config.fleet.mode == "embedded" else "on the peers named there"
    details = [f"model {config.model.recipe} in {stages} {where}, precision {config.fleet.precision}"]
    if own.is_file() and not own.samefile(config.file):
        details.append(f"your own {own} is not used: the file above comes first")
    set_by_environment = sorted(
        name for name in environment if name.startswith("FLEETCHAT_") and name not in FOLDERS
    )
    if set_by_environment:
        details.append(f"set by the environment: {', '.join(set_by_environment)}")
    return ok(NAME, file, *details)
