"""From the configuration to an open fleet's options: recipe, build, peers, key.

Shared by `ask` and the TUI, so that both read a setting the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetchat import paths
from fleetchat.certificates import certificate_file, check_certificate
from fleetchat.config import Config
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.recipe import Recipe, RecipeSampling, find_recipe, parse_layers
from fleetchat.cutter.store import Store
from fleetchat.errors import ConfigError, CutRefused
from fleetchat.fleet.options import FleetOptions, PeerSpec, embedded_peers, require_draft_model
from fleetchat.fleet.provision import BuildProgress, build_in_process
from fleetchat.fleet.session import SamplingSettings
from fleetchat.fleet.shapes import known_layers
from fleetchat.keys import KEY_FILE_NAME, FleetKey, load_or_create_key, read_key

DEFAULT_CONTEXT = 2048  # positions; KV cells are taken for all of it


async def prepare_fleet(
    config: Config,
    *,
    source: Path | None = None,
    on_build: Callable[[BuildProgress], None],
) -> FleetOptions:
    """Build what is missing, then everything that `open_fleet` needs.

    Raises RecipeError, ConfigError, and what a build raises.
    """
    recipe = find_recipe(config.model.recipe)
    peers, layers = peers_of(config), layers_of(config)
    store = Store(paths.store_folder())
    key = key_of(config, (*peers, *spares_of(config)))
    if any(peer.address is None for peer in peers):
        paths.require_writable(paths.log_folder())  # said before a build that takes minutes
    drafter, draft_model = drafter_of(config, recipe), draft_of(config, recipe)
    require_draft_model(drafter, draft_model)
    try:
        manifest = await build_in_process(
            config.model.recipe, len(peers), store=store, source=source, layers=layers, on_progress=on_build
        )
    except CutRefused as refusal:
        if layers is None:
            raise
        raise _wrong_layers(config, refusal.message) from refusal
    return FleetOptions(
        manifest=manifest,
        store_root=store.root,
        peers=peers,
        precision=config.fleet.precision,
        kv=config.fleet.kv,
        context=context_of(config, recipe, manifest),
        threads=config.fleet.threads,
        key=key,
        kv_cells=config.fleet.kv_cells,
        drafter=drafter,
        drafter_asked=config.speculation.drafter is not None,
        draft_model=draft_model,
        draft_depth=None if config.speculation.depth == "adaptive" else int(config.speculation.depth),
        max_draft=config.speculation.max_draft,
        spares=spares_of(config),
        named_in=config.file if config.fleet.mode == "peers" else None,
    )


def peers_of(config: Config) -> tuple[PeerSpec, ...]:
    """The chain's peers in order. Raises ConfigError when `mode = "peers"` names none."""
    if config.fleet.mode == "embedded":
        return embedded_peers(config.fleet.stages)
    serving = tuple(
        PeerSpec(peer.address, peer.name, peer.device or "CPU")
        for peer in config.fleet.peers
        if not peer.spare
    )
    if not serving:
        raise ConfigError(
            f'{config.file}: [fleet] mode = "peers", but no [[fleet.peers]] is named',
            hint='add a [[fleet.peers]] table with an address, or set mode = "embedded"',
        )
    return serving


def layers_of(config: Config) -> tuple[tuple[int, int], ...] | None:
    """First and last layer of each stage, where the peers say it.

    Raises ConfigError when only some do, or when they cannot be all layers of the model in order.
    """
    if config.fleet.mode == "embedded":
        return None
    serving = [peer for peer in config.fleet.peers if not peer.spare]
    chosen = tuple(peer.layers for peer in serving if peer.layers is not None)
    if not chosen:
        return None
    if len(chosen) < len(serving):
        raise _wrong_layers(
            config,
            f"{len(chosen)} of the {len(serving)} peers say which layers they serve, the others do not",
        )
    try:
        parse_layers(",".join(f"{first}-{last}" for first, last in chosen))
    except ValueError as error:
        raise _wrong_layers(config, str(error)) from None
    given, known = chosen[-1][1] + 1, known_layers(config.model.recipe)
    if known not in (None, given):
        raise _wrong_layers(config, f"the stages have {given} layers, but {config.model.recipe} has {known}")
    return chosen


def _wrong_layers(config: Config, reason: str) -> ConfigError:
    return ConfigError(
        f"{config.file}: layers in [[fleet.peers]]: {reason}",
        hint="write layers for all of them or for none; `fleetchat fleet plan --write` does it",
    )


def spares_of(config: Config) -> tuple[PeerSpec, ...]:
    """Peers that wait until another one is lost."""
    if config.fleet.mode == "embedded":
        return ()
    return tuple(PeerSpec(peer.address, peer.name) for peer in config.fleet.peers if peer.spare)


def key_of(config: Config, peers: tuple[PeerSpec, ...]) -> bytes | None:
    """The shared key; None when every stage is embedded (the chain then makes a one-time key)."""
    if all(peer.address is None for peer in peers):
        return None
    path = config.fleet.key_file or paths.config_folder() / KEY_FILE_NAME
    key = read_key(path) if config.fleet.key_file is not None else load_or_create_key(path)
    return FleetKey(key, check_certificate(certificate_file(path)) if config.fleet.tls else None)


def key_here(config: Config) -> bytes | None:
    """The chat's key, None when there is none; nothing is made. Raises ConfigError for a damaged one."""
    path = config.fleet.key_file or paths.config_folder() / KEY_FILE_NAME
    if not path.exists() and config.fleet.key_file is None:
        return None
    return FleetKey(read_key(path), check_certificate(certificate_file(path)) if config.fleet.tls else None)


def context_of(config: Config, recipe: Recipe, manifest: Manifest) -> int:
    """Positions of one conversation. Raises ConfigError beyond what the model was made for."""
    longest = min(recipe.context or manifest.context, manifest.context)
    if config.model.context is None:
        return min(DEFAULT_CONTEXT, longest)
    if config.model.context > longest:
        raise ConfigError(
            f"a context of {config.model.context:,} tokens is more than {recipe.title} was made for "
            f"({longest:,})",
            hint=f"set --context or [model] context to at most {longest}",
        )
    return config.model.context


def draft_of(config: Config, recipe: Recipe) -> Path | None:
    """Folder of the draft model. A recipe's draft that is not built is no draft."""
    if config.speculation.draft_model is not None:
        return config.speculation.draft_model
    if recipe.draft is None:
        return None
    store = Store(paths.store_folder())
    built = store.find_recipe(recipe.draft, 1)
    return store.folder(built.build_key) / built.stages[0].xml.name if built else None


def drafter_of(config: Config, recipe: Recipe) -> str:
    """What is set; else ngram+model where there is a draft model, else ngram."""
    if config.speculation.drafter is not None:
        return config.speculation.drafter
    return "ngram+model" if draft_of(config, recipe) is not None else "ngram"


def system_of(config: Config, recipe: Recipe) -> str | None:
    """The system prompt: what is set, else what suits the model; None = the chat template's own."""
    return config.chat.system if config.chat.system is not None else recipe.system


def sampling_of(config: Config, recipe: RecipeSampling) -> SamplingSettings:
    """What is set wins; then what suits the model; then nothing is filtered."""
    own = config.sampling
    return SamplingSettings(
        temperature=_first_set(own.temperature, recipe.temperature, 1.0),
        top_p=_first_set(own.top_p, recipe.top_p, 1.0),
        top_k=int(_first_set(own.top_k, recipe.top_k, 0)),
        repetition_penalty=_first_set(own.repetition_penalty, recipe.repetition_penalty, 1.0),
    )


def _first_set(own: float | None, suggested: float | None, neutral: float) -> float:
    return next(value for value in (own, suggested, neutral) if value is not None)
