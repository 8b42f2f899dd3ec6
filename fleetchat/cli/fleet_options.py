"""Options that the chat and `ask` share: the model, the fleet that serves it, and what guesses tokens."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fleetchat.errors import RecipeError

if TYPE_CHECKING:
    from fleetchat.config import Config
    from fleetchat.cutter.recipe import Recipe

FLEET_SETTINGS = {
    "recipe": "model.recipe",
    "context": "model.context",
    "stages": "fleet.stages",
    "kv": "fleet.kv",
    "precision": "fleet.precision",
    "drafter": "speculation.drafter",
    "draft_model": "speculation.draft_model",
    "draft_depth": "speculation.depth",
    "max_draft": "speculation.max_draft",
}
"""Which key of the configuration each of them sets."""


def add_model_options(group: argparse._ArgumentGroup) -> None:
    """Add what says which model is served, and how."""
    group.add_argument("--fleet", type=Path, metavar="FILE", help="the configuration file to use")
    group.add_argument("--recipe", metavar="NAME", help="the model: a recipe's name or file")
    group.add_argument("--stages", type=int, metavar="N", help="into how many stages the model is cut")
    group.add_argument(
        "--precision", choices=("exact", "fast"), help="exact: same seed, same text, on any chain"
    )
    group.add_argument("--kv", choices=("auto", "masked", "paged"), help="how stages keep the KV cache")
    group.add_argument("--context", type=int, metavar="N", help="tokens of a conversation, answers included")


def add_speculation_options(parser: argparse.ArgumentParser) -> None:
    """Add what guesses, and how far ahead."""
    group = parser.add_argument_group("speculation: tokens are guessed ahead, the text stays the same")
    group.add_argument(
        "--drafter",
        choices=("none", "ngram", "model", "ngram+model"),
        help="what guesses: ngram looks the text up, model is a small model of the same vocabulary",
    )
    group.add_argument("--draft-model", metavar="PATH", help="folder of the draft model's OpenVINO IR")
    group.add_argument(
        "--draft-depth", type=_depth, metavar="N", help="drafts a round: adaptive, or a number"
    )
    group.add_argument("--max-draft", type=int, metavar="K", help="the most that adaptive takes")


def configured_recipe(config: Config) -> Recipe:
    """The recipe that is configured. Raises RecipeError, which says where it is named."""
    from fleetchat.cutter.recipe import find_recipe

    try:
        return find_recipe(config.model.recipe)
    except RecipeError as error:
        raise RecipeError(f"{config.recipe_place}: {error.message}", hint=error.hint) from error


def _depth(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdecimal() else text
