"""One build under several recipes: shards of the same model, cut alike, are the same files (pure)."""

from __future__ import annotations

from dataclasses import replace

from fleetchat.cutter.manifest import ALSO, Manifest


def with_recipe(manifest: Manifest, name: str) -> Manifest:
    """The manifest of a build that serves one recipe more."""
    return _named(manifest, [*manifest.recipes, name])


def without_recipe(manifest: Manifest, name: str) -> Manifest | None:
    """The manifest of a build that serves one recipe less; None when there is no other."""
    others = [one for one in manifest.recipes if one != name]
    return _named(manifest, others) if others else None


def _named(manifest: Manifest, names: list[str]) -> Manifest:
    first, *others = dict.fromkeys(names)
    extra = {key: value for key, value in manifest.extra.items() if key != ALSO}
    return replace(manifest, recipe=first, extra=extra | ({ALSO: ",".join(others)} if others else {}))
