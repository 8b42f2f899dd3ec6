"""Named files of a repository of the Hugging Face hub: listed, fetched over https, taken up again, checked.

HF_ENDPOINT, HF_TOKEN and the login of `hf auth login` are huggingface_hub's own. Files are fetched here, as
its own download begins again in another process (1.33). A file is there whole, or as `.part`.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fleetchat.cutter.files import publish, sha256_of
from fleetchat.cutter.recipe import HubSource
from fleetchat.cutter.recipe_table import member
from fleetchat.cutter.store import Store, megabytes
from fleetchat.errors import FetchError, SourceError

OnProgress = Callable[[str, int, int], None]

CHUNK = 1 << 20  # bytes
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5  # connections for one file without a byte of progress
LISTING_LIMIT = 16 << 20  # bytes of the list of a repository's files
WANTED = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "chat_template.jinja", "chat_template.json", "tokenizer.model"),
    *("added_tokens.json", "vocab.json", "merges.txt"),
)


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository; `sha256` where the hub states it."""

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """What is to be fetched of one commit of a repository."""

    repository: str
    commit: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def is_checkpoint(self) -> bool:
        """Whether the weights have to be exported."""
        return not any(file.name.endswith((".xml", ".gguf")) for file in self.files)


def list_repository(source: HubSource) -> Listing:
    """Ask the hub what a build would fetch. Raises FetchError, SourceError."""
    place = f"{source.repository}/revision/{source.revision}"
    with _opened(f"{_endpoint()}/api/models/{place}?blobs=true", source.repository) as answer:
        text = answer.read(LISTING_LIMIT)
    try:
        document = json.loads(text)
        found = [_file(one) for one in document["siblings"]]
        commit = str(document["sha"])
    except (ValueError, KeyError, TypeError) as error:
        raise FetchError(f"{_endpoint()} does not answer as the Hugging Face hub does: {error}") from error
    return Listing(source.repository, commit, tuple(chosen(source, found)))


def chosen(source: HubSource, files: list[HubFile]) -> list[HubFile]:
    """The GGUF that is named, else an OpenVINO model, else a checkpoint, else the only GGUF. Pure.

    Raises SourceError when there is none of them.
    """
    named = {file.name: file for file in files}
    if source.file is not None:
        if source.file not in named:
            raise SourceError(f"the repository {source.repository} has no file {source.file}")
        return [named[source.file]]
    small = [named[name] for name in WANTED if name in named]
    top = [file for file in files if "/" not in file.name]
    ir = [file for file in top if file.name.endswith((".xml", ".bin")) and file.name.startswith("openvino_")]
    if "openvino_model.xml" in named:
        return [*small, *ir]
    for ending in (".safetensors", ".bin"):
        weights = [
            file for file in top if file.name.endswith(ending) and not file.name.startswith("consolidated")
        ]
        if weights and "config.json" in named:
            index = [file for file in top if file.name.endswith(f"{ending}.index.json")]
            return [*small, *index, *weights]
    ggufs = [file for file in files if file.name.endswith(".gguf")]
    if len(ggufs) == 1:
        return ggufs
    if ggufs:
        names = ", ".join(file.name for file in ggufs[:8])
        raise SourceError(
            f"the repository {source.repository} has {len(ggufs)} GGUF files",
            hint=f"choose one: fleetchat shards build {source.repository}:FILE ({names})",
        )
    raise SourceError(
        f"the repository {source.repository} has neither a checkpoint, an OpenVINO model nor a GGUF file",
        hint="is it the repository of a language model?",
    )


def fetch_repository(source: HubSource, store: Store, on_progress: OnProgress) -> Path:
    """Fetch what is missing; the folder, or the GGUF. Raises FetchError, SourceError, BuildError (disk)."""
    on_progress(f"asking the hub for {source.repository}", 0, 0)
    listing = list_repository(source)
    folder = store.download_folder / f"hub-{source.repository.replace('/', '--')}-{listing.commit[:12]}"
    missing = [file for file in listing.files if not _is_there(folder / file.name, file)]
    store.check_space(sum(file.size - _size(_part(folder / file.name)) for file in missing))
    step = f"fetching {source.repository} ({megabytes(listing.size)})"
    done = listing.size - sum(file.size for file in missing)
    for file in missing:
        _fetch(listing, file, folder / file.name, partial(_tell, on_progress, step, done, listing.size))
        done += file.size
    gguf = [file for file in listing.files if file.name.endswith(".gguf")]
    return folder / gguf[0].name if gguf else folder


def _tell(on_progress: OnProgress, step: str, before: int, total: int, count: int) -> None:
    on_progress(step, before + count, total)


def _fetch(listing: Listing, file: HubFile, target: Path, on_bytes: Callable[[int], None]) -> None:
    part = _part(target)
    part.parent.mkdir(parents=True, exist_ok=True)
    quoted = urllib.parse.quote(file.name)
    address = f"{_endpoint()}/{listing.repository}/resolve/{listing.commit}/{quoted}"
    failures = 0
    while (have := _size(part)) < file.size or not part.exists():
        try:
            _append(address, listing.repository, part, file, on_bytes)
        except (http.client.HTTPException, OSError) as error:
            failures = failures + 1 if _size(part) == have else 1
            if not _is_network(error) or failures >= ATTEMPTS:
                raise
        if _size(part) <= have and file.size:
            failures += 1
            if failures >= ATTEMPTS:
                raise FetchError(
                    f"the hub ends {file.name} of {listing.repository} after {have} of {file.size} bytes",
                    hint="try again later: what was fetched is kept",
                )
    if file.sha256 is not None and sha256_of(part) != file.sha256:
        part.unlink()
        raise FetchError(
            f"{file.name} of {listing.repository} did not arrive as the hub has it: its SHA-256 differs",
            hint="build again: the file is fetched anew",
        )
    publish(part, target)


def _append(
    address: str, repository: str, part: Path, file: HubFile, on_bytes: Callable[[int], None]
) -> None:
    have = _size(part)
    with _opened(address, repository, have) as answer:
        if have and answer.status != 206:
            have = 0  # the server begins anew
        with part.open("ab" if have else "wb") as stream:
            while chunk := answer.read(CHUNK):
                have += len(chunk)
                if have > file.size:
                    raise FetchError(
                        f"the hub sends more of {file.name} than the {file.size} bytes that it stated"
                    )
                stream.write(chunk)
                on_bytes(have)


def _opened(address: str, repository: str, begin: int = 0) -> Any:
    """An open answer. Raises FetchError with what to do."""
    headers = {"User-Agent": "fleetchat", "Accept-Encoding": "identity"}
    token = _token()
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if begin:
        headers["Range"] = f"bytes={begin}-"
    request = urllib.request.Request(address, headers=headers)
    try:
        return urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(error.code, repository, signed_in=bool(token)) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise FetchError(
            f"the Hugging Face hub cannot be reached at {_endpoint()}: {reason}",
            hint="check network, proxy and HF_ENDPOINT; or copy the model here and name its folder or file",
        ) from error


def _refused(code: int, repository: str, *, signed_in: bool) -> FetchError | SourceError:
    if code in (401, 403):
        todo = "accept its licence on the model's page, then `hf auth login` or set HF_TOKEN"
        return SourceError(
            f"the hub does not give {repository} to {'this account' if signed_in else 'everybody'} "
            f"(HTTP {code}): it is gated, private or does not exist",
            hint=todo,
        )
    if code == 404:
        return SourceError(
            f"the hub has no model {repository}, or not that revision or file (HTTP 404)",
            hint="check the spelling on the model's page",
        )
    return FetchError(
        f"the hub refuses {repository}: HTTP {code}", hint="try again later: what was fetched is kept"
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """The token goes to the hub, not to where it redirects."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        moved = super().redirect_request(req, fp, code, msg, headers, newurl)
        hosts = [urllib.parse.urlsplit(url).netloc for url in (req.full_url, newurl)]
        if moved is not None and hosts[0] != hosts[1]:
            moved.remove_header("Authorization")
        return moved


def _file(one: Any) -> HubFile:
    try:
        name = member(one["rfilename"])
    except ValueError as error:
        raise FetchError(f"the hub names a file that leads out of its repository: {error}") from None
    large = one.get("lfs") or {}
    return HubFile(name, int(large.get("size") or one.get("size") or 0), large.get("sha256"))


def _is_there(path: Path, file: HubFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size


def _is_network(error: Exception) -> bool:
    """A broken connection, and not a disk that is full."""
    return isinstance(error, http.client.HTTPException | ConnectionError | TimeoutError)


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT.rstrip("/")


def _token() -> str | None:
    from huggingface_hub import get_token

    return get_token()
