"""What was measured on this machine, in a file of the cache folder: later loads read it and measure nothing.

A file for each machine and model. One that is damaged, or says what cannot be, is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleetchat.engine.fast_settings import Choice, FastSettings, Timing

FORMAT = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SettingsKey:
    """What a measurement holds for. The cuts of a model share it, so that all stages here agree."""

    processor: str
    openvino: str
    device: str
    threads: int
    model: str  # hash of the source
    converter: str

    @property
    def file_name(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def as_text(key: SettingsKey, choice: Choice, timings: Mapping[FastSettings, Timing]) -> str:
    """The file: JSON, times in milliseconds."""
    figures = [
        {
            **settings._asdict(),
            "decode_ms": _milliseconds(timing.decode),
            "verify_ms": _milliseconds(timing.verify),
            "chunk_ms": _milliseconds(timing.chunk),
            "score_ms": _milliseconds(timing.score),
        }
        for settings, timing in timings.items()
    ]
    document = {
        "format": FORMAT,
        "measured": asdict(key),
        "chosen": choice.settings._asdict(),
        "reason": choice.reason,
        "figures": figures,
    }
    return json.dumps(document, indent=1) + "\n"


def parse(text: str, key: SettingsKey, allowed: Collection[FastSettings]) -> Choice | None:
    """What was chosen for `key`; None when the text does not say one of `allowed`."""
    try:
        document: Any = json.loads(text)
        if document["format"] != FORMAT or document["measured"] != asdict(key):
            return None
        chosen = FastSettings(**document["chosen"])
        reason = document["reason"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    if not (isinstance(reason, str) and chosen in allowed and type(chosen.group) is int):
        return None
    return Choice(chosen, reason)


class Records:
    """The files. Nothing in here raises: a folder that cannot be used costs a measurement each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: SettingsKey, allowed: Collection[FastSettings]) -> Choice | None:
        try:
            text = (self._folder / key.file_name).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
        return parse(text, key, allowed)

    def keep(self, key: SettingsKey, choice: Choice, timings: Mapping[FastSettings, Timing]) -> None:
        """Write in one piece, whoever reads or writes at the same time."""
        self._write(key.file_name, as_text(key, choice, timings))

    def begin(self, key: SettingsKey, settings: FastSettings) -> None:
        """Note that `settings` are about to be tried which have been known to end a process."""
        self._write(f"{key.file_name}.trying", json.dumps(settings._asdict()))

    def ended(self, key: SettingsKey) -> None:
        """The process has lived through it."""
        with suppress(OSError):
            (self._folder / f"{key.file_name}.trying").unlink(missing_ok=True)

    def deadly(self, key: SettingsKey) -> frozenset[FastSettings]:
        """Settings in the midst of which an earlier process ended."""
        try:
            text = (self._folder / f"{key.file_name}.trying").read_text(encoding="utf-8")
            return frozenset({FastSettings(**json.loads(text))})
        except (OSError, ValueError, TypeError, RecursionError):
            return frozenset()

    def _write(self, name: str, text: str) -> None:
        temporary = self._folder / f"{name}.{secrets.token_hex(8)}.tmp"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, self._folder / name)
        except OSError as error:
            _log.warning("the measured settings cannot be kept: %s", error)
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 3) if math.isfinite(seconds) else 0.0
