"""Manifests survive being written and read, and a damaged one is a ValueError."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.manifest_file import from_json, to_json
from fleetchat.cutter.store import Store

Tiny = tuple[Store, Manifest]


def test_what_is_written_is_read(tiny_store: Tiny) -> None:
    manifest = tiny_store[1]
    assert from_json(Manifest, to_json(manifest)) == manifest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.pop("layers"), "layers is missing or unknown"),
        (lambda one: one.update(color="red"), "color is missing or unknown"),
        (lambda one: one.update(layers="3"), r"layers\. is not of type int"),
        (lambda one: one.update(layers=True), r"layers\. is not of type int"),
        (lambda one: one.update(stages={}), r"stages\. is not of type list"),
        (lambda one: one["stages"][0]["xml"].pop("sha256"), r"stages\.xml\.sha256 is missing or unknown"),
        (lambda one: one["stages"][0].update(kv_shapes=[[1, 2, 3]]), "has 3 entries, expected 2"),
        (lambda one: one.update(extra={"a": 1}), "is not of type str"),
    ],
)
def test_another_shape_is_refused(tiny_store: Tiny, change: Any, said: str) -> None:
    table = json.loads(to_json(tiny_store[1]))
    change(table)
    with pytest.raises(ValueError, match=said):
        from_json(Manifest, json.dumps(table))


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(Manifest, text)


def test_whole_numbers_may_stand_for_floats(tiny_store: Tiny) -> None:
    table = json.loads(to_json(tiny_store[1]))
    table["weight_error"] = 0
    table["bos_id"] = None
    manifest = from_json(Manifest, json.dumps(table))
    assert manifest.weight_error == 0.0
    assert manifest.bos_id is None
