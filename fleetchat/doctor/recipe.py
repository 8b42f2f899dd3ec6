"""The recipe of the configured model."""

from __future__ import annotations

from fleetchat.cutter.recipe import HubSource, PathSource, Recipe
from fleetchat.doctor.finding import Finding, fail, ok

NAME = "recipe"


def check_recipe(recipe: Recipe) -> Finding:
    """Reading it has succeeded; is the model where it says?"""
    if isinstance(recipe.source, PathSource):
        if not recipe.source.path.exists():
            return fail(
                NAME,
                f"{recipe.name} takes its model from {recipe.source.path}, which does not exist",
                "correct `path` under [source] in the recipe, or put the model there",
            )
        origin = str(recipe.source.path)
    elif isinstance(recipe.source, HubSource):
        origin = f"{recipe.source.repository} on the Hugging Face hub"
    else:
        origin = f"the package {recipe.source.package} {recipe.source.version}"
    return ok(NAME, f"{recipe.name}: {recipe.title}, from {origin}")
