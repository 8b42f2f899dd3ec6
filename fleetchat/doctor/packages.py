"""The packages that fleetchat needs: installed, and in a version that it was made for?"""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import fleetchat
from fleetchat.doctor.finding import Finding, fail, ok, warn

NAME = "packages"
SHOWN = ("openvino", "openvino-genai", "textual", "trio", "tokenizers", "numpy")


def required() -> list[str]:
    """Requirements as pip writes them: of the installed package, or of the checkout that runs.

    Empty when neither can be read.
    """
    project = Path(fleetchat.__file__).resolve().parent.parent / "pyproject.toml"
    try:
        table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        if table["name"] == "fleetchat":
            return list(table["dependencies"])
    except (OSError, ValueError, KeyError):
        pass  # not a checkout
    try:
        return importlib.metadata.requires("fleetchat") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def installed_version(package: str) -> str | None:
    """None when the package is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_packages(
    requirements: Sequence[str], version_of: Callable[[str], str | None] = installed_version
) -> Finding:
    """Compare what is required with what is installed."""
    from packaging.requirements import Requirement

    if not requirements:
        return warn(
            NAME,
            "what fleetchat requires cannot be read: it runs from a folder without pyproject.toml",
            "install it: python -m pip install fleetchat",
        )
    parsed = [Requirement(text) for text in requirements]
    wanted = [one for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]
    versions = {one.name: version_of(one.name) for one in wanted}
    missing = [one for one in wanted if versions[one.name] is None]
    wrong = [one for one in wanted if not _suits(one, versions[one.name])]
    if not missing and not wrong:
        shown = ", ".join(f"{name} {versions[name]}" for name in SHOWN if versions.get(name))
        return ok(NAME, f"all {len(wanted)} that are required", *([shown] if shown else []))
    faults = [f"{one.name} is missing" for one in missing]
    faults += [f"{one.name} {versions[one.name]} is not {one.specifier}" for one in wrong]
    bare = [f'"{one.name}{one.extras or ""}{one.specifier}"' for one in (*missing, *wrong)]
    return fail(NAME, "; ".join(faults), f"python -m pip install {' '.join(bare)}")


def _suits(requirement: object, version: str | None) -> bool:
    """A missing package is another fault."""
    from packaging.requirements import Requirement

    assert isinstance(requirement, Requirement)
    return version is None or requirement.specifier.contains(version, prereleases=True)
