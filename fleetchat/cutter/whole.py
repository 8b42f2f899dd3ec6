"""The whole model in the store: converted, repaired, with its tokenizer; made once, cut many times."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openvino as ov

from fleetchat.cutter.convert import IR_NAME, MADE, ask_tokenizer, convert_gguf, converter_version
from fleetchat.cutter.files import link_or_copy, publish, stored_file, write_text
from fleetchat.cutter.gguf_file import GgufFile
from fleetchat.cutter.ir_file import save_ir
from fleetchat.cutter.manifest import StoredFile
from fleetchat.cutter.manifest_file import from_json, to_json
from fleetchat.cutter.repair import REPAIR_VERSION, WeightReport, repair
from fleetchat.cutter.source import IR_COMPANIONS, GgufSource, IrSource, Source
from fleetchat.cutter.store import Store, verify_file
from fleetchat.cutter.template_check import checked, checked_folder
from fleetchat.cutter.vocabulary import Vocabulary, check_tokenizer, from_gguf
from fleetchat.errors import ShardDamaged, SourceError

RECORD = "whole.json"
TOKENIZER = "tokenizer.json"
TEMPLATE = "chat_template.jinja"
SPACE_FACTOR = 2.3  # bytes needed for each byte of the source: converted, repaired, some room

OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Whole:
    """What `whole.json` records. `hash` is the folder's name."""

    hash: str
    source: str
    converter: str
    context: int
    bos_id: int | None
    stop_ids: tuple[int, ...]
    weight_error_before: float
    weight_error: float
    repaired_layers: int
    tokenizer_texts: int  # awkward texts on which the tokenizer was compared with the source's own
    files: tuple[StoredFile, ...]


def converter_of(source: Source) -> str:
    """What turns the source into a whole model; part of a build's identity."""
    if isinstance(source, IrSource):
        return "none"
    return f"{converter_version()}, repair {REPAIR_VERSION}"


def whole_hash(identity: str, converter: str) -> str:
    """Name of the folder for a source and a converter."""
    return hashlib.sha256(json.dumps([identity, converter]).encode()).hexdigest()


def obtain_whole(source: Source, store: Store, on_progress: OnProgress) -> Whole:
    """The whole model of a source, made now unless the store has it undamaged.

    Raises SourceError, BuildError.
    """
    name = whole_hash(source.identity, converter_of(source))
    kept = find_whole(name, store)
    if kept is not None:
        return kept
    with store.temporary("whole") as folder:
        if isinstance(source, GgufSource):
            store.check_space(int(source.path.stat().st_size * SPACE_FACTOR))
            whole = _from_gguf(source, name, folder, on_progress)
        else:
            store.check_space(source.xml.with_suffix(".bin").stat().st_size)
            whole = _from_ir(source, name, folder, on_progress)
        write_text(folder / RECORD, to_json(whole))
        publish(folder, store.whole_folder / name)
    return whole


def find_whole(name: str, store: Store) -> Whole | None:
    """The record of a kept whole model; None when there is none or a file of it is damaged."""
    folder = store.whole_folder / name
    try:
        whole = from_json(Whole, (folder / RECORD).read_text(encoding="utf-8"))
        for file in whole.files:
            verify_file(folder, file)
    except (OSError, ValueError, ShardDamaged):
        return None
    return whole


def _from_gguf(source: GgufSource, name: str, folder: Path, on_progress: OnProgress) -> Whole:
    with GgufFile(source.path) as gguf:
        on_progress("building the tokenizer", 0, 0)
        vocabulary = checked(from_gguf(gguf), source.path)
        on_progress("converting the model", 0, 0)
        raw = folder / "raw"
        raw.mkdir()
        xml = convert_gguf(source.path, raw)
        report = _repaired(xml, folder / IR_NAME, gguf, on_progress)
        for file in MADE[2:]:
            shutil.move(raw / file, folder / file)
        shutil.rmtree(raw)
        context = gguf.integer(f"{gguf.architecture}.context_length") or 0
    texts = _write_vocabulary(vocabulary, folder, on_progress)
    return Whole(
        hash=name,
        source=source.identity,
        converter=converter_of(source),
        context=context,
        bos_id=vocabulary.bos_id,
        stop_ids=vocabulary.stop_ids,
        weight_error_before=report.error_before,
        weight_error=report.error_after,
        repaired_layers=report.repaired,
        tokenizer_texts=texts,
        files=_files_in(folder),
    )


def _repaired(xml: Path, target: Path, gguf: GgufFile, on_progress: OnProgress) -> WeightReport:
    """Read the converted model, repair it and save it to `target`."""
    on_progress("comparing the weights with the source", 0, 0)
    model = ov.Core().read_model(xml)
    report = repair(
        model, gguf, lambda done, total: on_progress("comparing the weights with the source", done, total)
    )
    on_progress("saving the repaired model", 0, 0)
    save_ir(model, target)
    return report


def _from_ir(source: IrSource, name: str, folder: Path, on_progress: OnProgress) -> Whole:
    exported = source.xml.parent
    vocabulary = checked_folder(exported)
    on_progress("copying the model", 0, 0)
    shutil.copyfile(source.xml, folder / IR_NAME)
    link_or_copy(source.xml.with_suffix(".bin"), (folder / IR_NAME).with_suffix(".bin"))
    for file in IR_COMPANIONS:
        if (exported / file).is_file():
            shutil.copyfile(exported / file, folder / file)
    texts = _write_vocabulary(vocabulary, folder, on_progress)
    return Whole(
        hash=name,
        source=source.identity,
        converter=converter_of(source),
        context=_stated_context(exported),
        bos_id=vocabulary.bos_id,
        stop_ids=vocabulary.stop_ids,
        weight_error_before=0.0,
        weight_error=0.0,
        repaired_layers=0,
        tokenizer_texts=texts,
        files=_files_in(folder),
    )


def _write_vocabulary(vocabulary: Vocabulary, folder: Path, on_progress: OnProgress) -> int:
    """Write tokenizer and template; compare with the source's tokenizer where there is one."""
    write_text(folder / TOKENIZER, vocabulary.tokenizer)
    write_text(folder / TEMPLATE, vocabulary.template)
    if not (folder / "openvino_tokenizer.xml").is_file():
        return 0
    on_progress("comparing the tokenizer with the source's", 0, 0)
    scratch = folder / "scratch"
    scratch.mkdir()
    texts = check_tokenizer(vocabulary, lambda texts: ask_tokenizer(folder, texts, scratch))
    shutil.rmtree(scratch)
    return texts


def _files_in(folder: Path) -> tuple[StoredFile, ...]:
    return tuple(stored_file(folder, path.name) for path in sorted(folder.iterdir()) if path.is_file())


def _stated_context(folder: Path) -> int:
    """`max_position_embeddings` of the exported configuration, 0 = not stated.

    Longrope (Phi-3, Phi-4-mini) rescales all positions as soon as one token lies beyond the original length:
    what a token means would depend on the chunk, and on the sessions, that it is computed with. Such models
    are served up to there.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    if not isinstance(config, dict):
        raise SourceError(f"{folder / 'config.json'} is not a JSON object")
    if (original := _original_length(config)) is not None:
        return original
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    stated = [config[name] for name in names if isinstance(config.get(name), int)]
    return int(stated[0]) if stated else 0


def _original_length(config: dict[str, Any]) -> int | None:
    """Positions before longrope changes its factors; None for any other kind of position."""
    for name in ("rope_scaling", "rope_parameters"):
        rope = config.get(name)
        if isinstance(rope, dict) and "longrope" in (rope.get("rope_type"), rope.get("type")):
            key = "original_max_position_embeddings"
            original = rope.get(key, config.get(key))
            return original if isinstance(original, int) else None
    return None


def copy_vocabulary(whole_folder: Path, folder: Path) -> tuple[StoredFile, StoredFile]:
    """Give a build its own tokenizer and template (a second name for the same file where possible)."""
    for name in (TOKENIZER, TEMPLATE):
        link_or_copy(whole_folder / name, folder / name)
    return stored_file(folder, TOKENIZER), stored_file(folder, TEMPLATE)
