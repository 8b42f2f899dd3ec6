"""How many positions an exported model is served with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetchat.cutter.build import build
from fleetchat.cutter.recipe import load
from fleetchat.cutter.store import Store
from fleetchat.cutter.whole import _stated_context
from fleetchat.errors import SourceError
from tests.families.cases import CASES, CONTEXT, write_folder


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"n_positions": 1024}, 1024),
        ({"max_position_embeddings": 8192, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 8192),
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope"},
            },
            4096,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 4096},
            },
            4096,
        ),
        ({}, 0),
    ],
)
def test_it_ends_where_longrope_changes_all_positions(
    config: dict[str, object], context: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert _stated_context(tmp_path) == context


@pytest.mark.slow
def test_a_recipe_cannot_ask_for_more(tmp_path: Path) -> None:
    write_folder(CASES[0], tmp_path / "model")
    recipe = tmp_path / "long.toml"
    recipe.write_text('context = 4096\n[source]\nkind = "path"\npath = "model"\n', encoding="utf-8")
    with pytest.raises(SourceError) as refused:
        build(load(recipe), 2, None, Store(tmp_path / "store"))
    assert refused.value.message == (
        f"the recipe wants a context of 4,096 positions, the model was made for {CONTEXT}"
    )
    assert refused.value.hint == f"write context = {CONTEXT} into the recipe, or leave it out"
