from __future__ import annotations

import pytest

from fleetchat import __version__
from fleetchat.errors import PeerRefused
from fleetchat.fleet.versions import version_note


def note(fleetchat: str = "0.1.0", openvino: str = "2026.4.1") -> str:
    return version_note("stage 1", fleetchat=fleetchat, openvino=openvino, ours="2026.4.1", own="0.1.0")


def test_the_same_versions_need_no_word() -> None:
    assert note() == ""
    assert version_note("s", fleetchat=__version__, openvino="1.2", ours="1.2") == ""


def test_other_versions_are_told_with_both() -> None:
    assert note("0.2.0", "2026.3.0") == (
        "stage 1 has fleetchat 0.2.0 (here 0.1.0) and OpenVINO 2026.3.0 (here 2026.4.1); they work together"
    )


def test_another_series_is_refused_with_both_and_the_remedy() -> None:
    with pytest.raises(PeerRefused) as caught:
        note(openvino="2025.4.0")
    assert caught.value.message == (
        "stage 1 has OpenVINO 2025.4.0, this machine 2026.4.1: shards of one are not made for the other"
    )
    assert caught.value.hint == "install the same on all machines: python -m pip install openvino==2026.4.1"


def test_what_is_no_version_is_no_reason() -> None:
    assert note(openvino="not installed") == (
        "stage 1 has OpenVINO not installed (here 2026.4.1); they work together"
    )
