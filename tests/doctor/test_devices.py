"""OpenVINO's devices, and what happens when OpenVINO does not come back."""

from __future__ import annotations

import json
import os

import pytest

from fleetchat.doctor.devices import Device, Probed, check_devices, cpu_features, parse, probe, signal_name
from fleetchat.doctor.finding import Status
from fleetchat.errors import FleetchatError
from tests.doctor.set_up import SetUp, fake_openvino

FAST = {
    "INFERENCE_PRECISION_HINT": "float32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "32",
    "KV_CACHE_PRECISION": "uint8_t",
}
PROCESSOR = Device("CPU", "Some CPU", ("FP32",), {"fast": FAST})


@pytest.mark.slow
def test_this_machine_has_a_cpu_that_computes_as_it_is_told() -> None:
    found = check_devices(probe(1), (), 4)
    assert found.status is Status.OK, found.text
    by_default = "computes in f32, activations quantised in groups of 32, KV cache in u8"
    assert f"CPU, fast by default: {by_default}" in found.details
    assert "CPU, exact: computes in f32, activations not quantised, KV cache in f32" in found.details


def test_what_is_shown_of_a_device() -> None:
    found = check_devices(Probed("2026.4", (PROCESSOR,)), ("AVX2",), 4)
    assert found.text == "2026.4, devices: CPU; 4 cores for this process"
    assert found.details[:2] == ("Some CPU", "it has AVX2")


def test_only_a_missing_or_broken_cpu_is_a_failure() -> None:
    broken = Device("GPU", "Some GPU", error="no driver")
    both = check_devices(Probed("1", (PROCESSOR, broken)), (), 1)
    assert both.status is Status.OK
    assert "GPU: does not work: no driver" in both.details
    alone = check_devices(Probed("1", (broken,)), (), 1)
    assert (alone.status, alone.text) == (Status.FAIL, "OpenVINO 1 finds no CPU device (found: GPU)")
    dead = check_devices(Probed("1", (Device("CPU", error="no AVX"),)), (), 1)
    assert (dead.status, dead.text) == (Status.FAIL, "OpenVINO's CPU device does not work: no AVX")


def test_what_a_library_prints_before_the_answer_is_passed_over() -> None:
    one = {"name": "CPU", "full_name": "", "capabilities": [], "settings": {}, "error": ""}
    answer = json.dumps({"version": "2026.4.1-22982-branch", "devices": [one]})
    assert parse(f"[INFO] hello\n{answer}\n") == Probed("2026.4.1", (Device("CPU", settings={}),))


@pytest.mark.parametrize("output", ["", "hello", "{}", '{"version": "1", "devices": [{}]}'])
def test_another_answer_is_refused(output: str) -> None:
    with pytest.raises(FleetchatError, match="cannot be understood"):
        parse(output)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('libopenvino.so: no such file')", "libopenvino.so: no such file"),
        ("import os; os._exit(3)", "OpenVINO cannot be used: exit code 3"),
    ],
)
def test_an_openvino_that_cannot_be_imported(
    empty: SetUp, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", fake_openvino(empty.folder, source)["PYTHONPATH"])
    with pytest.raises(FleetchatError) as caught:
        probe(1)
    assert said in caught.value.message
    assert caught.value.hint


def test_features_of_processors() -> None:
    assert cpu_features("processor : 0\nflags\t\t: fpu avx2 avx512f amx_int8\n") == (
        "AVX2",
        "AVX-512",
        "AMX int8",
    )
    assert cpu_features("Features\t: fp asimd i8mm\n") == ("NEON", "int8 matrices")
    assert cpu_features("") == ()


@pytest.mark.skipif(os.name != "posix", reason="names of POSIX signals")
def test_signals_have_names() -> None:
    assert signal_name(4).startswith("SIGILL (")
    assert signal_name(4000) == "signal 4000"
