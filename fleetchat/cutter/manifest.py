"""What a build produced, as values read from and written to `manifest.json`.

The build key is the identity that peers compare: the hash of source, cutter format, cut and
converter version. It is the name of the build's folder in the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetchat.ids import BuildKey, Rollback

CUTTER_FORMAT = 3  # raise it when the shards that this code writes change; old builds are then rebuilt


ALSO = "also"  # in `Manifest.extra`: further recipes of the same model, with commas
RECURRENT = "recurrent"  # in `Manifest.extra`: a state does not grow with the tokens


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a build, relative to the build's folder."""

    name: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class StageEntry:
    """One shard.

    Layers are numbered from 0, both ends included. `kv_shapes` has the (heads, head size) of each
    state variable of the stage. `inputs` are the names of its Parameters.
    """

    index: int
    first_layer: int
    last_layer: int
    xml: StoredFile
    bin: StoredFile
    inputs: tuple[str, ...]
    kv_shapes: tuple[tuple[int, int], ...]
    attention_layers: int
    fused_layers: int
    cost: int  # weight bytes touched per token

    @property
    def kv_values_per_cell(self) -> int:
        """Scalars that one cell holds on this stage."""
        return sum(heads * size for heads, size in self.kv_shapes)


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Largest differences found by the build's self-check, in logits."""

    same_graph: float  # chain against whole, must be 0.0
    same_mathematics: float  # gathered rows, other chunking, exact precision: at most 1e-4
    rollback: float  # after a masked rollback against a clean run, exact precision
    rollback_passed: bool
    largest_activation: float  # at any boundary; above 3e4 the wire must be f32


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a coordinator and a peer need to know of a build."""

    format: int
    build_key: BuildKey
    recipe: str
    model: str  # name shown to people
    source: str  # identity of the source: sha256 of the GGUF or of the IR
    converter: str  # name and version
    layers: int
    hidden: int
    vocabulary: int
    context: int  # most positions that the model was made for
    window: int  # smallest sliding window, 0 = none
    stages: tuple[StageEntry, ...]
    tokenizer: StoredFile  # tokenizer.json
    template: StoredFile  # chat_template.jinja
    bos_id: int | None
    stop_ids: tuple[int, ...]
    weight_error: float  # mean relative error of converted weights against the source, after repair
    self_check: SelfCheck
    created: str  # ISO 8601, UTC
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes that these shards serve: `recipe`, and others of the same model cut alike."""
        return (self.recipe, *filter(None, self.extra.get(ALSO, "").split(",")))

    @property
    def rollback(self) -> Rollback:
        """What the masked engine has to do for this model; the paged one only shortens a table."""
        if RECURRENT in self.extra:
            return Rollback.RESTART
        return Rollback.MASK if self.self_check.rollback_passed else Rollback.TRIM
