"""The build: fetch, convert, repair, cut, check, store. Nothing is done twice, nothing is half-stored."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fleetchat.cutter.cut import CutResult, CutStage, cut_model
from fleetchat.cutter.files import stored_file
from fleetchat.cutter.manifest import CUTTER_FORMAT, RECURRENT, Manifest, SelfCheck, StageEntry
from fleetchat.cutter.partition import LayerRange
from fleetchat.cutter.recipe import Recipe
from fleetchat.cutter.selfcheck import self_check
from fleetchat.cutter.shared_build import with_recipe
from fleetchat.cutter.source import Source, known_source, obtain
from fleetchat.cutter.stagewise import ids_needed, stagewise_check
from fleetchat.cutter.store import Store, matches
from fleetchat.cutter.vocabulary import text_ids
from fleetchat.cutter.whole import TOKENIZER, Whole, converter_of, copy_vocabulary, obtain_whole
from fleetchat.errors import BuildError, DiskFull, ShardDamaged, SourceError
from fleetchat.ids import BuildKey
from fleetchat.paths import unwritable

# A full disk, a quota, a limit of the size of a file (EDQUOT is unknown on Windows).
NO_SPACE = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
LARGE = 2 << 30  # bytes of a whole model that is not loaded at once any more
CUT_SPACE_FACTOR = 1.8  # bytes needed for each byte of the whole model: stages share the embedding

OnProgress = Callable[[str, int, int], None]  # what is done now, steps done, steps in all (0 = unknown)


def build(
    recipe: Recipe,
    stages: int | None,
    ranges: tuple[LayerRange, ...] | None,
    store: Store,
    source_override: Path | None = None,
    on_progress: OnProgress = lambda step, done, total: None,
) -> Manifest:
    """The shards of a recipe, built now unless the store has them undamaged.

    `stages` None takes what the recipe says; `ranges` cuts by hand instead of balanced. Two builds in one
    store wait for each other. Raises InputError kinds for a wrong recipe, source or cut, FetchError and
    BuildError for what fails at run time.
    """
    if ranges is None and stages in (None, recipe.stages):
        ranges = recipe.layers
    count = len(ranges) if ranges is not None else stages or recipe.stages
    if stages is not None and stages != count:
        raise SourceError(f"{stages} stages were asked for, but {count} layer ranges were given")
    damaged: set[BuildKey] = set()
    with _disk_full_explained(store):
        store.sweep()
        known = known_source(recipe, source_override, store)
        if known is not None:
            converter = converter_of(known)
            found = _undamaged(recipe, count, ranges, known.identity, converter, store, on_progress, damaged)
            if found is not None:
                return found
        with store.locked(lambda who: on_progress(f"waiting for another build ({who})", 0, 0)):
            return _build_locked(recipe, count, ranges, store, source_override, on_progress, damaged)


def build_key(source: str, converter: str, ranges: tuple[LayerRange, ...]) -> BuildKey:
    """Identity of a build: what its shards depend on, hashed."""
    identity = {"converter": converter, "cutter": CUTTER_FORMAT, "ranges": ranges, "source": source}
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return BuildKey(hashlib.sha256(canonical.encode()).hexdigest())


def _build_locked(
    recipe: Recipe,
    count: int,
    ranges: tuple[LayerRange, ...] | None,
    store: Store,
    override: Path | None,
    on_progress: OnProgress,
    damaged: set[BuildKey],
) -> Manifest:
    source = _source_or_kept(recipe, override, store, on_progress)
    converter = converter_of(source)
    found = _undamaged(
        recipe, count, ranges, source.identity, converter, store, on_progress, damaged, shared=True
    )
    if found is not None:
        return found
    whole = obtain_whole(source, store, on_progress)
    whole_folder = store.whole_folder / whole.hash
    whole_xml = whole_folder / "openvino_model.xml"
    store.check_space(int(whole_xml.with_suffix(".bin").stat().st_size * CUT_SPACE_FACTOR))
    with store.temporary("build") as folder:
        cut, check = _cut_and_checked(
            whole_folder, folder, count if ranges is None else None, ranges, on_progress
        )
        on_progress("storing the shards", 0, 0)
        manifest = _manifest(
            recipe, whole, cut, check, balanced=ranges is None, folders=(whole_folder, folder)
        )
        store.publish(folder, manifest)
    return manifest


def _source_or_kept(recipe: Recipe, override: Path | None, store: Store, on_progress: OnProgress) -> Source:
    """The source; one that is known is not fetched when its whole model is kept."""
    from fleetchat.cutter.whole import find_whole, whole_hash

    known = known_source(recipe, override, store)
    if known is not None and find_whole(whole_hash(known.identity, converter_of(known)), store) is not None:
        return known
    return obtain(recipe, override, store, on_progress)


def _undamaged(
    recipe: Recipe,
    count: int,
    ranges: tuple[LayerRange, ...] | None,
    identity: str,
    converter: str,
    store: Store,
    on_progress: OnProgress,
    damaged: set[BuildKey],
    *,
    shared: bool = False,
) -> Manifest | None:
    """A build that is what would be built now, with all its files as they should be.

    What is in `damaged` was found and told before; what is found now goes there.
    `shared`: also one that another recipe of the same model has; it then serves both.
    """
    for manifest in reversed(store.builds()):
        same_context = recipe.context in (None, manifest.context)
        if manifest.converter != converter or not same_context:
            continue
        if recipe.name not in manifest.recipes and not shared:
            continue
        if not matches(manifest, count, ranges, identity):
            continue
        if manifest.build_key not in damaged:
            on_progress("checking the stored shards", 0, 0)
        try:
            store.verify(manifest)
        except ShardDamaged as damage:
            if manifest.build_key not in damaged:
                on_progress(f"building again: {damage.message}", 0, 0)
            damaged.add(manifest.build_key)
            continue
        if recipe.name not in manifest.recipes:
            on_progress(f"the recipe {manifest.recipe} has the same shards: both use them", 0, 0)
            manifest = with_recipe(manifest, recipe.name)
            store.rename(manifest)
        return manifest
    return None


def _cut_and_checked(
    whole_folder: Path,
    folder: Path,
    count: int | None,
    ranges: tuple[LayerRange, ...] | None,
    on_progress: OnProgress,
) -> tuple[CutResult, SelfCheck]:
    """Cut the whole model and compare. Raises CutRefused, SourceError, BuildError.

    Rewritten linear layers must not change a bit. Where a processor's kernels do, they stay as they are.
    """
    whole_xml = whole_folder / "openvino_model.xml"
    cut = cut_model(
        whole_xml,
        folder,
        stages=count,
        ranges=ranges,
        on_progress=on_progress,
        tuned=not _is_large(whole_xml),
    )
    try:
        return cut, _checked(whole_folder, cut, on_progress)
    except BuildError:
        if not cut.tuned:
            raise
    cut = cut_model(whole_xml, folder, stages=count, ranges=ranges, on_progress=on_progress)
    return cut, _checked(whole_folder, cut, on_progress)


def _checked(whole_folder: Path, cut: CutResult, on_progress: OnProgress) -> SelfCheck:
    """Compare the chain with the whole model; a large one is not loaded whole. Raises BuildError."""
    whole_xml, window = whole_folder / "openvino_model.xml", cut.shape.window
    if not _is_large(whole_xml):
        stages = [stage.xml for stage in cut.stages]
        return self_check(whole_xml, stages, window=window, on_progress=on_progress)
    return stagewise_check(
        whole_xml,
        [(stage.xml, (stage.first_layer, stage.last_layer)) for stage in cut.stages],
        text_ids(whole_folder / TOKENIZER, ids_needed(window), cut.shape.vocabulary),
        window=window,
        on_progress=on_progress,
    )


def _is_large(whole_xml: Path) -> bool:
    return whole_xml.with_suffix(".bin").stat().st_size >= LARGE


def _manifest(
    recipe: Recipe,
    whole: Whole,
    cut: CutResult,
    check: SelfCheck,
    *,
    balanced: bool,
    folders: tuple[Path, Path],
) -> Manifest:
    """Describe what was made; `folders` are those of the whole model and of the new build."""
    whole_folder, folder = folders
    ranges = tuple((stage.first_layer, stage.last_layer) for stage in cut.stages)
    tokenizer, template = copy_vocabulary(whole_folder, folder)
    context = recipe.context or whole.context
    if context < 1:
        raise SourceError(
            "the model does not say for how many positions it was made", hint="add context = N to the recipe"
        )
    if whole.context and context > whole.context:
        raise SourceError(
            f"the recipe wants a context of {context:,} positions, the model was made for {whole.context:,}",
            hint=f"write context = {whole.context} into the recipe, or leave it out",
        )
    return Manifest(
        format=CUTTER_FORMAT,
        build_key=build_key(whole.source, whole.converter, ranges),
        recipe=recipe.name,
        model=recipe.title,
        source=whole.source,
        converter=whole.converter,
        layers=cut.shape.layers,
        hidden=cut.shape.hidden,
        vocabulary=cut.shape.vocabulary,
        context=context,
        window=cut.shape.window,
        stages=tuple(_entry(stage, folder) for stage in cut.stages),
        tokenizer=tokenizer,
        template=template,
        bos_id=whole.bos_id,
        stop_ids=whole.stop_ids,
        weight_error=whole.weight_error,
        self_check=check,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        extra={
            "cut": "balanced" if balanced else "by hand",
            "whole": whole.hash,
            "licence": recipe.licence,
            "weight_error_before": f"{whole.weight_error_before:.6f}",
            "linear_layers": "merged" if cut.tuned else "as converted",
            **({RECURRENT: "yes"} if cut.shape.recurrent else {}),
        },
    )


def _entry(stage: CutStage, folder: Path) -> StageEntry:
    return StageEntry(
        index=stage.index,
        first_layer=stage.first_layer,
        last_layer=stage.last_layer,
        xml=stored_file(folder, stage.xml.name),
        bin=stored_file(folder, stage.bin.name),
        inputs=stage.inputs,
        kv_shapes=stage.kv_shapes,
        attention_layers=stage.attention_layers,
        fused_layers=stage.fused_layers,
        cost=stage.cost,
    )


@contextmanager
def _disk_full_explained(store: Store) -> Iterator[None]:
    """A full disk becomes one clear line, also where a library reports it in its own words."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise _disk_full(store) from error
        if not store.root.is_dir() or not os.access(store.root, os.W_OK):
            raise unwritable(store.root, error) from error
        raise BuildError(f"the store {store.root} cannot be written: {error}") from error
    except RuntimeError as error:  # openvino's own
        reason = " ".join(str(error).split())
        raise BuildError(f"OpenVINO failed: {reason[:300]}") from error


def _disk_full(store: Store) -> DiskFull:
    return DiskFull(
        f"no space is left on the disk of {store.root}; nothing was stored",
        hint="free some space, remove builds with `fleetchat shards rm`, or choose --store DIR",
    )
