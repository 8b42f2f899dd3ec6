"""The other side of a pair: a process with openvino_genai (see `baseline.py`), driven from trio."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from fleetchat.bench.replies import ReplyTime, timed_reply
from fleetchat.bench.setting import Setting
from fleetchat.bench.subject import Subject
from fleetchat.child import child_environment, own_process_group
from fleetchat.engine.precision import openvino_config
from fleetchat.errors import FleetchatError

CHUNK = 1 << 16  # bytes read at once
WHOLE_REPLY = 86_400.0  # seconds: no limit


class BaselineSide:
    """One loaded pipeline of openvino_genai. Use `open_baseline`."""

    def __init__(self, process: trio.Process, subject: Subject, max_tokens: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._stop_ids = sorted(subject.stop_ids)
        self._max_tokens = max_tokens
        self._received = b""

    async def replies(self, prompts: Sequence[tuple[int, ...]], seconds: float) -> list[ReplyTime]:
        """Replies to the prompts in turn, one at a time, until `seconds` are over."""
        said = await self._ask("replies", prompts=list(prompts), seconds=seconds)
        found = [timed_reply(one["started"], one["times"], one["token_ids"]) for one in said["replies"]]
        return [reply for reply in found if reply is not None]

    async def reply_times(self, prompt: Sequence[int]) -> list[float]:
        """Seconds from the question to each token of one reply, however long that takes."""
        said = await self._ask("replies", prompts=[list(prompt)], seconds=WHOLE_REPLY, most=1)
        (reply,) = said["replies"]
        return [moment - reply["started"] for moment in reply["times"]]

    async def batch(self, prompts: Sequence[tuple[int, ...]]) -> tuple[list[list[int]], float]:
        """All prompts at once: the token ids of the replies, and the seconds from begin to end."""
        said = await self._ask("batch", prompts=list(prompts))
        return said["token_ids"], said["seconds"]

    async def load(self, folder: str, backend: str, config: dict[str, object], cores: Sequence[int]) -> None:
        await self._exchange(
            {"load": {"folder": folder, "backend": backend, "config": config, "cores": list(cores)}}
        )

    async def _ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        common = {"max_tokens": self._max_tokens, "stop_ids": self._stop_ids}
        return await self._exchange({command: {**arguments, **common}})

    async def _exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        try:
            await self._stdin.send_all(json.dumps(command).encode() + b"\n")
            said: dict[str, Any] = json.loads(await self._line())
        except (trio.BrokenResourceError, ValueError) as error:
            raise FleetchatError("the process with openvino_genai ended; memory may have run out") from error
        if "error" in said:
            raise FleetchatError(f"openvino_genai failed: {said['error']}")
        return said

    async def _line(self) -> bytes:
        while b"\n" not in self._received:
            chunk = await self._stdout.receive_some(CHUNK)
            if not chunk:
                raise ValueError("end of file")
            self._received += chunk
        line, self._received = self._received.split(b"\n", 1)
        return line


@asynccontextmanager
async def open_baseline(
    setting: Setting, subject: Subject, backend: str, *, cores: Sequence[int], max_tokens: int
) -> AsyncIterator[BaselineSide]:
    """Load the whole IR with one thread a core, pinned there; the process is gone at the end.

    `backend` is SDPA, PA or CB. Raises FleetchatError.
    """
    setting.note(f"loading openvino_genai ({backend})")
    options: dict[str, Any] = {**own_process_group(), "env": child_environment()}
    process = await trio.lowlevel.open_process(
        [sys.executable, "-P", "-m", "fleetchat.bench.baseline"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **options,
    )
    try:
        side = BaselineSide(process, subject, max_tokens)
        config = openvino_config(setting.precision, max(1, len(cores)), fast=subject.fast)
        await side.load(str(subject.whole), backend, config, cores)
        yield side
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
