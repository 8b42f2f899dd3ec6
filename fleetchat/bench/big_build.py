"""The made-up models of `bench big` and the build of their shards, measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from fleetchat.bench.big_plan import DRAFT, BigPlan, model_bytes
from fleetchat.bench.pairs import Row, paired_row
from fleetchat.bench.peak import Peak, watched
from fleetchat.bench.report import row_line
from fleetchat.bench.setting import Setting
from fleetchat.bench.synthetic import write_synthetic
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.fleet.provision import BuildProgress, build_in_process
from fleetchat.fleet.shapes import SHAPES, ModelShape

CONTEXT = 4096
PAIRS = 3
SMALL = 2 << 30  # bytes of a model, beyond which a LONG prompt is measured in one pair: it takes minutes
LONG = 512  # tokens
GIGABYTE = 1e9


@dataclass
class Measured:
    """What came out so far."""

    setting: Setting
    plan: BigPlan
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str, baseline: float | None = None) -> None:
        ratio = None if baseline is None else value / baseline
        self._keep(Row(f"big.{self.plan.name}.{name}", value, unit, baseline, ratio))

    def pair(self, name: str, unit: str, values: Sequence[float], baselines: Sequence[float]) -> None:
        self._keep(paired_row(f"big.{self.plan.name}.{name}", unit, values, baselines))

    def _keep(self, row: Row) -> None:
        """Told at once as well: the whole takes minutes."""
        self.rows.append(row)
        self.setting.note(row_line(row))

    def pairs(self, tokens: int) -> int:
        """How many replies of each side to prompts of that length."""
        takes_long = model_bytes(self.plan.shape) > SMALL and tokens > LONG
        return 1 if takes_long or self.setting.effort.quick else PAIRS

    @property
    def prompts(self) -> tuple[int, ...]:
        return self.plan.prompts


async def made_and_built(measured: Measured) -> Manifest:
    setting, plan = measured.setting, measured.plan
    drafts = (SHAPES[DRAFT],) if plan.drafter != "none" else ()
    for shape in dict.fromkeys((plan.shape, *drafts)):
        started = time.perf_counter()
        if await make_model(plan.folder / shape.name, shape, setting.note) and shape is plan.shape:
            measured.add("generate", time.perf_counter() - started, "s")
    store = Store(plan.folder / "store")
    recipe = write_recipe(plan)
    known = {build.build_key for build in store.builds()}
    peak, reported = Peak(), _Steps(setting.note)
    started = time.perf_counter()

    def note_process(process: int) -> None:
        peak.process = process

    async with watched(peak):
        manifest = await build_in_process(
            str(recipe),
            plan.stages,
            store=store,
            on_progress=reported.note,
            on_start=note_process,
        )
    seconds = time.perf_counter() - started
    sizes = [entry.bin.size for entry in manifest.stages]
    for index, size in enumerate(sizes):
        measured.add(f"shard.{index}", size / GIGABYTE, "GB")
    if manifest.build_key in known:
        measured.notes.append("the shards of an earlier run were used (--keep)")
        return manifest
    measured.add("build", seconds, "s")
    if peak.most:
        measured.add("build.memory", peak.most / GIGABYTE, "GB", max(sizes) / GIGABYTE)
    return manifest


async def make_model(folder: Path, shape: ModelShape, note: Callable[[str], None]) -> bool:
    """The made-up model; False when it was there."""
    if (folder / "openvino_model.bin").is_file() and (folder / "config.json").is_file():
        note(f"{shape.name} is there already")
        return False
    note(f"making up {shape.name}: {model_bytes(shape) / GIGABYTE:.1f} GB")
    await trio.to_thread.run_sync(partial(write_synthetic, folder, shape))
    return True


def write_recipe(plan: BigPlan) -> Path:
    """A recipe for the made-up model."""
    name = f"synthetic-{plan.shape.name}".replace(".", "-")
    lines = [
        f'name = "{name}"',
        f'title = "{plan.shape.name}, made up"',
        f"stages = {plan.stages}",
        f"context = {CONTEXT}",
        "[source]",
        'kind = "path"',
        f'path = "{plan.shape.name}"',
    ]
    recipe = plan.folder / f"{name}.toml"
    recipe.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return recipe


class _Steps:
    """Tells the steps of a build, each once."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._last = ""

    def note(self, progress: BuildProgress) -> None:
        if progress.step != self._last:
            self._last = progress.step
            self._note(f"building: {progress.step}")
