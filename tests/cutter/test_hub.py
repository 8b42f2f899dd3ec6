"""Fetching from the hub, against a small server that stands for it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from fleetchat.cli.main import main
from fleetchat.cutter.hub import HubFile, chosen, fetch_repository, list_repository
from fleetchat.cutter.recipe import HubSource, find_recipe
from fleetchat.cutter.store import Store
from fleetchat.errors import FetchError, SourceError
from tests.tiny_model import write_tiny_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SOURCE = HubSource("someone/model")


class Hub:
    """What the server has, what it was asked, and how it misbehaves."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {
            "config.json": b"{}",
            "tokenizer.json": b"{}",
            "model.safetensors": bytes(5000),
        }
        self.asked: list[tuple[str, str | None]] = []
        self.status = 200
        self.breaks_after: int | None = None  # bytes of each answer
        self.stated: dict[str, str] = {}

    def listing(self) -> bytes:
        siblings = [
            {
                "rfilename": name,
                "size": len(content),
                "lfs": {
                    "size": len(content),
                    "sha256": self.stated.get(name, hashlib.sha256(content).hexdigest()),
                },
            }
            for name, content in self.files.items()
        ]
        return json.dumps({"sha": COMMIT, "siblings": siblings}).encode()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            begin = self.headers.get("Range")
            name = self.path.rsplit(f"/resolve/{COMMIT}/", 1)[-1]
            state.asked.append((name, begin))
            content = state.listing() if self.path.startswith("/api/") else state.files.get(name, b"")
            start = int(begin.split("=")[1].rstrip("-")) if begin else 0
            self.send_response(state.status if state.status != 200 else 206 if begin else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            limit = None if self.path.startswith("/api/") else state.breaks_after
            self.wfile.write(content[start:] if limit is None else content[start : start + limit])

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def files_below(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.download_folder.rglob("*") if path.is_file()}


def test_the_files_of_a_checkpoint_are_fetched_once(hub: Hub, tmp_path: Path) -> None:
    store, told = Store(tmp_path), []
    hub.files["README.md"] = b"not wanted"
    folder = fetch_repository(SOURCE, store, lambda *step: told.append(step))
    assert folder.name == f"hub-someone--model-{COMMIT[:12]}"
    del hub.files["README.md"]
    assert files_below(store) == hub.files
    assert told[-1] == ("fetching someone/model (0 MB)", 5004, 5004)
    hub.asked.clear()
    assert fetch_repository(SOURCE, store, lambda *_: None) == folder
    assert [name for name, _ in hub.asked] == ["/api/models/someone/model/revision/main?blobs=true"]


def test_a_broken_answer_is_taken_up_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    hub.breaks_after = 2000
    fetch_repository(SOURCE, Store(tmp_path), lambda *_: None)
    assert files_below(Store(tmp_path)) == hub.files
    large = [begin for name, begin in hub.asked if name == "model.safetensors"]
    assert large == [None, "bytes=2000-", "bytes=4000-"]


def test_what_was_fetched_is_kept_for_the_next_process(hub: Hub, tmp_path: Path) -> None:
    hub.breaks_after = 0
    with pytest.raises(FetchError, match=r"the hub ends config\.json of someone/model after 0 of 2 bytes"):
        fetch_repository(SOURCE, Store(tmp_path), lambda *_: None)
    folder = Store(tmp_path).download_folder / f"hub-someone--model-{COMMIT[:12]}"
    (folder / "model.safetensors.part").write_bytes(bytes(4321))
    hub.breaks_after = None
    hub.asked.clear()
    fetch_repository(SOURCE, Store(tmp_path), lambda *_: None)
    assert ("model.safetensors", "bytes=4321-") in hub.asked
    assert files_below(Store(tmp_path)) == hub.files


def test_another_content_than_the_hubs_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.stated["model.safetensors"] = "0" * 64
    with pytest.raises(FetchError, match="did not arrive as the hub has it: its SHA-256 differs"):
        fetch_repository(SOURCE, Store(tmp_path), lambda *_: None)
    assert "model.safetensors" not in files_below(Store(tmp_path))


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, SourceError, "does not give someone/model to everybody (HTTP 401): it is gated"),
        (404, SourceError, "the hub has no model someone/model"),
        (503, FetchError, "the hub refuses someone/model: HTTP 503"),
    ],
)
def test_a_refusal_is_explained(hub: Hub, status: int, kind: type[Exception], said: str) -> None:
    hub.status = status
    with pytest.raises(kind) as raised:
        list_repository(SOURCE)
    assert said in str(raised.value)


def test_without_network_the_other_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(FetchError, match=r"cannot be reached at http://127\.0\.0\.1:9: ") as raised:
        list_repository(SOURCE)
    assert "copy the model here" in str(raised.value.hint)


def files(*names: str) -> list[HubFile]:
    return [HubFile(name, 1, None) for name in names]


def test_an_exported_model_is_taken_before_a_checkpoint() -> None:
    there = files("config.json", "openvino_model.xml", "openvino_model.bin", "model.safetensors", "x.gguf")
    assert [file.name for file in chosen(SOURCE, there)] == [
        "config.json",
        "openvino_model.xml",
        "openvino_model.bin",
    ]


def test_of_a_checkpoint_only_the_weights_in_one_format_are_taken() -> None:
    there = files(
        "config.json", "model.safetensors", "pytorch_model.bin", "consolidated.safetensors", "a/b.safetensors"
    )
    assert [file.name for file in chosen(SOURCE, there)] == ["config.json", "model.safetensors"]


def test_one_gguf_of_several_has_to_be_named() -> None:
    there = files("a.gguf", "b.gguf")
    with pytest.raises(SourceError, match="has 2 GGUF files") as raised:
        chosen(SOURCE, there)
    assert raised.value.hint == "choose one: fleetchat shards build someone/model:FILE (a.gguf, b.gguf)"
    assert chosen(HubSource("someone/model", file="b.gguf"), there) == there[1:]
    with pytest.raises(SourceError, match=r"has no file c\.gguf"):
        chosen(HubSource("someone/model", file="c.gguf"), there)
    with pytest.raises(SourceError, match="has neither a checkpoint, an OpenVINO model nor a GGUF file"):
        chosen(SOURCE, files("README.md"))


def test_a_file_outside_of_the_repository_is_refused(hub: Hub) -> None:
    hub.files["../../x"] = b""
    with pytest.raises(FetchError, match="leads out of its repository"):
        list_repository(SOURCE)


@pytest.mark.slow
def test_a_new_recipe_is_pinned_to_the_commit_that_was_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The repository's name means this recipe from then on, whatever the hub has meanwhile."""
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path / "config"))
    write_tiny_model(tmp_path / "exported")
    hub.files = {file.name: file.read_bytes() for file in (tmp_path / "exported").iterdir()}
    command = ["shards", "build", "someone/model", "--yes", "--store", str(tmp_path / "store")]
    assert main(command) == 0
    assert f'revision = "{COMMIT}"' in (tmp_path / "config" / "shards" / "model.toml").read_text()
    assert find_recipe("model").source == HubSource("someone/model", revision=COMMIT)
    hub.asked.clear()
    capsys.readouterr()
    assert main(command) == 0
    assert hub.asked == []
    assert capsys.readouterr().err == "checking the stored shards\n"
