"""The precision profiles, word for word."""

from __future__ import annotations

import math

import pytest

from fleetchat.engine.fast_settings import FastSettings
from fleetchat.engine.precision import Precision, openvino_config, wire_dtype
from fleetchat.wire.frames import WireDtype

SHARED = {
    "INFERENCE_PRECISION_HINT": "f32",
    "NUM_STREAMS": 1,
    "PERFORMANCE_HINT": "LATENCY",
    "ENABLE_CPU_PINNING": False,
    "INFERENCE_NUM_THREADS": 3,
}


def test_exact_profile() -> None:
    assert openvino_config("exact", 3) == {
        **SHARED,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        "KV_CACHE_PRECISION": "f32",
    }


def test_fast_profile() -> None:
    assert openvino_config(Precision.FAST, 3) == {
        **SHARED,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 32,
        "KV_CACHE_PRECISION": "u8",
    }


def test_other_devices_get_no_thread_properties() -> None:
    config = openvino_config("fast", 2, device="GPU")
    assert "ENABLE_CPU_PINNING" not in config
    assert "INFERENCE_NUM_THREADS" not in config


def test_no_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        openvino_config("exact", 0)


def test_unknown_profile_is_refused() -> None:
    with pytest.raises(ValueError, match="bf16"):
        openvino_config("bf16", 1)


@pytest.mark.parametrize(
    ("precision", "largest", "expected"),
    [
        ("exact", 10.0, WireDtype.F32),
        ("fast", 10.0, WireDtype.F16),
        ("fast", 3e4, WireDtype.F16),
        ("fast", 3.1e4, WireDtype.F32),
        ("fast", math.nan, WireDtype.F32),
        ("fast", math.inf, WireDtype.F32),
    ],
)
def test_wire_dtype(precision: str, largest: float, expected: WireDtype) -> None:
    assert wire_dtype(precision, largest) is expected


def test_measured_settings_are_for_fast_alone() -> None:
    plain, half = FastSettings("f32", 0), FastSettings("bf16", 32)
    assert openvino_config("fast", 3, fast=plain)["DYNAMIC_QUANTIZATION_GROUP_SIZE"] == 0
    assert openvino_config("fast", 3, fast=half)["INFERENCE_PRECISION_HINT"] == "bf16"
    assert openvino_config("exact", 3, fast=half) == openvino_config("exact", 3)


def test_half_precision_with_one_thread_is_refused() -> None:
    with pytest.raises(ValueError, match="bf16 with one thread may end the process"):
        openvino_config("fast", 1, fast=FastSettings("bf16", 32))
