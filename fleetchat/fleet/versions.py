"""Peers of other versions: who can serve one chain together, and what is said about it. Pure.

The protocol has its own version, refused in the handshake. Beyond it, fleetchat versions may differ. OpenVINO
reads models of older versions within a year's series; across series nobody promises that, so it is refused.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from fleetchat import __version__
from fleetchat.errors import PeerRefused


def version_note(place: str, *, fleetchat: str, openvino: str, ours: str, own: str = __version__) -> str:
    """What to tell of a peer with these versions; empty when they are this machine's, `own` and `ours`.

    Raises PeerRefused, with both versions, for an OpenVINO of another series.
    """
    if _series(openvino) and _series(ours) and _series(openvino) != _series(ours):
        raise PeerRefused(
            f"{place} has OpenVINO {openvino}, this machine {ours}: shards of one are not made for the other",
            hint=f"install the same on all machines: python -m pip install openvino=={ours}",
        )
    differing = []
    if fleetchat != own:
        differing.append(f"fleetchat {fleetchat} (here {own})")
    if openvino != ours:
        differing.append(f"OpenVINO {openvino} (here {ours})")
    return f"{place} has {' and '.join(differing)}; they work together" if differing else ""


@cache
def own_openvino() -> str:
    """Of the installed package, without importing it here; empty when it is not installed."""
    try:
        return version("openvino")
    except PackageNotFoundError:
        return ""


def _series(openvino: str) -> str:
    """The year, when the text is a version."""
    year = openvino.split(".")[0]
    return year if year.isdecimal() else ""
