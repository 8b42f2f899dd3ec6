"""OpenVINO: which devices it finds, and the settings that each gets."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetchat.child import child_environment
from fleetchat.doctor.finding import Finding, fail, ok
from fleetchat.errors import FleetchatError

NAME = "OpenVINO"
DEADLINE = 60.0  # seconds; a second or two are usual
REINSTALL = "python -m pip install --force-reinstall --no-deps openvino=={version}"
FEATURES = {  # flags of /proc/cpuinfo that matter for inference
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx_vnni": "AVX-VNNI",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_int8": "AMX int8",
    "amx_bf16": "AMX bf16",
    "asimd": "NEON",
    "asimddp": "dot product",
    "i8mm": "int8 matrices",
    "sve": "SVE",
}

TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint8_t": "u8", "int8_t": "i8"}


@dataclass(frozen=True, slots=True)
class Device:
    """`settings` has the properties in force by precision profile; `error` why the device does not work."""

    name: str
    full_name: str = ""
    capabilities: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, str]] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """What OpenVINO said."""

    version: str
    devices: tuple[Device, ...]


def probe(threads: int) -> Probed:
    """Ask OpenVINO in a process of its own. Raises FleetchatError: it died, hung or cannot be imported."""
    command = [sys.executable, "-P", "-m", "fleetchat.doctor.openvino_probe", str(threads)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=DEADLINE,
            env=child_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FleetchatError(
            f"OpenVINO did not answer within {DEADLINE:.0f} s",
            hint="a driver may hang: restart the machine, update the drivers of GPU and NPU",
        ) from None
    if done.returncode != 0:
        raise FleetchatError(*_died(done.returncode, done.stderr), hint=_hint())
    return parse(done.stdout)


def parse(output: str) -> Probed:
    """Read the probe's line; a library may have printed lines before it. Raises FleetchatError."""
    try:
        document = json.loads(output.strip().splitlines()[-1])
        version = str(document["version"]).partition("-")[0]  # without number and branch of the build
        return Probed(version, tuple(_device(one) for one in document["devices"]))
    except (IndexError, KeyError, TypeError, ValueError):
        raise FleetchatError("OpenVINO's answer cannot be understood", hint=_hint()) from None


def check_devices(probed: Probed, features: Sequence[str], cores: int) -> Finding:
    """Is there a CPU device that computes? Others are told, and what they are used for."""
    processor = next((device for device in probed.devices if device.name == "CPU"), None)
    if processor is None:
        found = ", ".join(device.name for device in probed.devices) or "none at all"
        return fail(
            NAME, f"OpenVINO {probed.version} finds no CPU device (found: {found})", _hint(), *_lines(probed)
        )
    if processor.error:
        return fail(NAME, f"OpenVINO's CPU device does not work: {processor.error}", _hint())
    names = ", ".join(device.name for device in probed.devices)
    details = [processor.full_name.strip()] if processor.full_name else []
    shown = ", ".join(features or processor.capabilities)
    details += [f"it has {shown}"] if shown else []
    use = f"{cores} core{'' if cores == 1 else 's'} for this process"
    return ok(NAME, f"{probed.version}, devices: {names}; {use}", *details, *_lines(probed))


def cpu_features(cpuinfo: str) -> tuple[str, ...]:
    """What /proc/cpuinfo says of the instructions that matter; empty where there is no such file."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    return tuple(name for flag, name in FEATURES.items() if flag in flags)


def read_cpuinfo() -> str:
    """Empty but on Linux."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _device(one: Mapping[str, Any]) -> Device:
    return Device(
        str(one["name"]),
        str(one["full_name"]),
        tuple(one["capabilities"]),
        one["settings"],
        str(one["error"]),
    )


def _lines(probed: Probed) -> list[str]:
    """The settings of each device, profile by profile."""
    lines = []
    for device in probed.devices:
        if device.error:
            lines.append(f"{device.name}: does not work: {device.error}")
        for precision, settings in (device.settings or {}).items():
            # What is measured may be faster: the check of the chain tells what its stages have chosen.
            default = " by default" if precision == "fast" else ""
            lines.append(f"{device.name}, {precision}{default}: {_settings(settings)}")
    return lines


def _settings(settings: Mapping[str, str]) -> str:
    group = settings.get("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0")
    parts = [
        f"computes in {_type(settings.get('INFERENCE_PRECISION_HINT', '?'))}",
        "activations not quantised" if group == "0" else f"activations quantised in groups of {group}",
        f"KV cache in {_type(settings.get('KV_CACHE_PRECISION', '?'))}",
    ]
    return ", ".join(parts)


def _type(name: str) -> str:
    """`f32` for OpenVINO's `float32`."""
    return TYPES.get(name, name)


def _died(code: int, said: str) -> tuple[str]:
    if code < 0:
        return (f"OpenVINO ended its process with {signal_name(-code)}",)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (f"OpenVINO cannot be used: {lines[-1] if lines else f'exit code {code}'}",)


def signal_name(number: int) -> str:
    """`SIGILL (illegal instruction)`; the number when this system has no name for it."""
    try:
        found = signal.Signals(number)
        words = signal.strsignal(number) or ""
    except ValueError:
        return f"signal {number}"
    return f"{found.name} ({words.lower()})" if words else found.name


def _hint() -> str:
    from fleetchat.doctor.packages import installed_version

    version = installed_version("openvino")
    if version is None:
        return "install it: python -m pip install openvino"
    return f"{REINSTALL.format(version=version)}; it needs a 64-bit processor with SSE4.2 or NEON"
