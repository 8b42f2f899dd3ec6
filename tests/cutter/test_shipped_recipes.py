"""The shipped recipes against the shapes of the models (their own configuration files)."""

from __future__ import annotations

import pytest

from fleetchat.cutter.recipe import HubSource, Recipe, known_recipes, load
from fleetchat.fleet.paper import Assumptions, paper_peers
from fleetchat.fleet.placement import Load, place
from fleetchat.fleet.shapes import SHAPES

# layers, KV values a token (keys and values of all layers), tied
FACTS = {
    "smollm2-135m": (30, 2 * 30 * 3 * 64, True),
    "smollm2-1.7b": (24, 2 * 24 * 32 * 64, True),
    "llama-3.2-1b": (16, 2 * 16 * 8 * 64, True),
    "llama-3.2-3b": (28, 2 * 28 * 8 * 128, True),
    "llama-3.1-8b": (32, 2 * 32 * 8 * 128, False),
    "llama-3.3-70b": (80, 2 * 80 * 8 * 128, False),
    "qwen3-0.6b": (28, 2 * 28 * 8 * 128, True),
    "qwen3-8b": (36, 2 * 36 * 8 * 128, False),
    "mistral-7b-v0.3": (32, 2 * 32 * 8 * 128, False),
    "phi-4-mini": (32, 2 * 32 * 8 * 128, True),
    "gemma-3-4b": (34, 2 * 34 * 4 * 256, True),
}
DRAFTS = {
    "llama-3.1-8b": "llama-3.2-1b",
    "llama-3.2-3b": "llama-3.2-1b",
    "llama-3.3-70b": "llama-3.2-1b",
    "qwen3-8b": "qwen3-0.6b",
}
RECIPES = {name: load(file) for name, file in known_recipes().items()}
FROM_HUB = sorted(set(FACTS) - {"smollm2-135m"})


def test_there_is_a_recipe_for_each_known_shape() -> None:
    assert set(RECIPES) == set(FACTS) == set(SHAPES)
    assert {name: one.draft for name, one in RECIPES.items() if one.draft} == DRAFTS
    assert all(one.licence and one.title and one.context for one in RECIPES.values())


@pytest.mark.parametrize("name", FACTS)
def test_the_shape_is_that_of_the_model(name: str) -> None:
    layers, values, tied = FACTS[name]
    shape = SHAPES[name]
    assert (shape.layers, shape.tied) == (layers, tied)
    assert shape.layers * shape.cell_bytes("exact") == 4 * values


@pytest.mark.parametrize("name", FROM_HUB)
def test_the_sizes_follow_from_the_shape(name: str) -> None:
    recipe, shape = RECIPES[name], SHAPES[name]
    assert isinstance(recipe.source, HubSource)
    assert recipe.source.weights == "int4"
    # 16 bits a weight; Qwen3 0.6B stores its tied head too, Gemma 3 4B has an image encoder
    extra = {"qwen3-0.6b": 0.32, "gemma-3-4b": 0.85}.get(name, 0.0) * 1e9
    assert recipe.sizes.download == pytest.approx(2 * shape.values + extra, rel=0.01)
    tables = shape.table_values * (1 if shape.tied else 2)
    whole = shape.layers * shape.layer_values * 0.52 + tables
    shards = whole + (shape.table_values if shape.tied else 0)
    assert recipe.sizes.built == pytest.approx(whole + shards, rel=0.02)


def machines(recipe: Recipe) -> str:
    return f"{recipe.stages}x{'32GB' if recipe.sizes.built > 10**10 else '16GB'}"


@pytest.mark.parametrize("name", FACTS)
def test_the_planner_places_it_on_as_many_machines_as_it_has_stages(name: str) -> None:
    recipe = RECIPES[name]
    peers = paper_peers(machines(recipe), Assumptions(), 4)
    plan = place(Load(SHAPES[name], context=4096, conversations=1), peers)
    assert plan.stages[0].first == 0
    assert plan.stages[-1].last == SHAPES[name].layers - 1
