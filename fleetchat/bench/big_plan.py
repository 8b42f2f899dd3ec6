"""What `bench big` measures, what it needs, and where it works (pure but for the look at what is free)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from fleetchat.bench.synthetic_weights import GROUP
from fleetchat.cutter.partition import LayerRange, partition
from fleetchat.engine.memory import available_memory
from fleetchat.errors import InputError
from fleetchat.fleet.shapes import SHAPES, ModelShape
from fleetchat.spelling import nearest

MODEL, QUICK_MODEL, DRAFT = "llama-3.1-8b", "llama-3.2-1b", "llama-3.2-1b"
ALIKE = ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "llama-3.3-70b")
"""Shapes that the generator has the layout of."""
ENGINES = ("masked", "paged")
PROMPTS = (200, 2000)  # tokens
QUICK_PROMPTS = (64, 512)
LONGEST_PROMPT = 4000  # tokens: with a reply it is to fit into the context
LEAST_FREE = 30 << 30  # bytes of disk, below which a model that no machine holds is not measured
STAGE_BYTES = 8 << 30  # about the largest stage, when the number of stages is not given
ROOM = 1.1  # of what was counted
MEMORY_OF_A_STAGE = 1.5  # bytes for each byte of a shard: weights that are repacked, activations, libraries


@dataclass(frozen=True, slots=True)
class BigPlan:
    """`folder` is where models and shards are made; `keep` leaves them there for the next run.

    `prompts` are lengths in tokens; `drafter` is what guesses tokens ahead in the end, or none.
    """

    shape: ModelShape
    stages: int
    one_by_one: bool
    folder: Path
    keep: bool = False
    engines: tuple[str, ...] = ENGINES
    every_stage: bool = False
    prompts: tuple[int, ...] = PROMPTS
    drafter: str = "model"

    @property
    def name(self) -> str:
        """As it stands in the rows: 8b."""
        return self.shape.name.rpartition("-")[2]

    @property
    def model_folder(self) -> Path:
        return self.folder / self.shape.name

    @property
    def ranges(self) -> tuple[LayerRange, ...]:
        """Layers of each stage, balanced by weights."""
        shape = self.shape
        return partition([shape.layer_values] * shape.layers, shape.table_values, 0, self.stages)

    def stage_bytes(self, index: int) -> int:
        """About the size of a shard."""
        first, last = self.ranges[index]
        tables = (index == 0) + (index == self.stages - 1)
        return (last - first + 1) * layer_bytes(self.shape) + tables * table_bytes(self.shape)

    @property
    def measured_stages(self) -> tuple[int, ...]:
        """One of each shape (so many layers, with or without a table), or all with `every_stage`."""
        if self.every_stage:
            return tuple(range(self.stages))
        shapes = {index: (self.stage_bytes(index), index == 0) for index in range(self.stages)}
        return tuple(dict(reversed([(shape, index) for index, shape in shapes.items()])).values())[::-1]

    def stands_for(self, index: int) -> int:
        """The measured stage that has the shape of this one."""
        alike = (self.stage_bytes(index), index == 0)
        return next(one for one in self.measured_stages if (self.stage_bytes(one), one == 0) == alike)

    @property
    def largest_stage(self) -> int:
        return max(map(self.stage_bytes, range(self.stages)))

    @property
    def disk_needed(self) -> int:
        """The whole model once, its shards, the scratch file; one by one: the same for one stage."""
        tables = 2 * table_bytes(self.shape)
        if self.one_by_one:
            return round(ROOM * (2 * self.largest_stage + tables + layer_bytes(self.shape) + tables // 2))
        draft = SHAPES[DRAFT]
        return round(ROOM * (2 * model_bytes(self.shape) + tables // 2 + model_bytes(draft)))

    @property
    def memory_needed(self) -> int:
        """One by one: a stage; else the chain and the whole model beside it."""
        held = self.largest_stage if self.one_by_one else 2 * model_bytes(self.shape)
        return round((MEMORY_OF_A_STAGE if self.one_by_one else 1.3) * held)


def layer_bytes(shape: ModelShape) -> int:
    """INT4 values; a scale of 2 bytes and a zero point of half a byte for each group."""
    return shape.layer_values // 2 + shape.layer_values // GROUP * 5 // 2


def table_bytes(shape: ModelShape) -> int:
    """INT8 values; 3 bytes for each row."""
    return shape.table_values + 3 * shape.vocabulary


def model_bytes(shape: ModelShape) -> int:
    """Of the whole model as it is written."""
    return shape.layers * layer_bytes(shape) + (1 if shape.tied else 2) * table_bytes(shape)


def plan_for(
    model: str | None,
    stages: int | None,
    one_by_one: bool,
    folder: Path,
    *,
    keep: bool,
    quick: bool,
    engine: str | None = None,
    every_stage: bool = False,
    prompts: tuple[int, ...] | None = None,
    drafter: str = "model",
) -> BigPlan:
    """What was asked for; `engine` None measures both. Raises InputError for what cannot be measured."""
    name = model or (QUICK_MODEL if quick else MODEL)
    if name not in ALIKE:
        raise InputError(f"--model: no shape {name!r} to make up{nearest(name, ALIKE)}: {', '.join(ALIKE)}")
    shape = SHAPES[name]
    one_by_one = one_by_one or model_bytes(shape) > 2 * STAGE_BYTES
    count = stages or max(2, -(-model_bytes(shape) // STAGE_BYTES))
    if not 1 <= count <= shape.layers:
        raise InputError(f"--stages must be from 1 to {shape.layers}, not {count}")
    prompts = prompts or (QUICK_PROMPTS if quick else PROMPTS)
    if not all(1 <= tokens <= LONGEST_PROMPT for tokens in prompts):
        raise InputError(f"--prompts must be from 1 to {LONGEST_PROMPT} tokens")
    engines = ENGINES if engine is None else (engine,)
    return BigPlan(shape, count, one_by_one, folder, keep, engines, every_stage, prompts, drafter)


def lacking(plan: BigPlan) -> str | None:
    """What is too little here to measure, in words and numbers; None when it is enough."""
    free = shutil.disk_usage(_existing(plan.folder)).free
    kept = sum(path.stat().st_size for path in plan.folder.rglob("*") if path.is_file())
    needed = max(plan.disk_needed - kept, LEAST_FREE if plan.one_by_one else 0)
    if free < needed:
        return f"disk: {needed / 1e9:.0f} GB needed in {plan.folder}, {free / 1e9:.0f} GB free"
    memory = available_memory()
    if 0 < memory < plan.memory_needed:
        return f"memory: {plan.memory_needed / 1e9:.1f} GB needed, {memory / 1e9:.1f} GB free"
    return None


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
