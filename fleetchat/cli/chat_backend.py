"""The real parts below the chat runtime: build, tokenizer and fleet, as `app.backend` wants them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from fleetchat.app.backend import ChatModel, OnBuild, OnPrefill, OnStart, OnText, ProposedCut
from fleetchat.app.chat_task import GenerationSettings
from fleetchat.app.events import Report
from fleetchat.app.runtime import ChatRuntime
from fleetchat.chat.conversation import ChatFormat
from fleetchat.chat.messages import Message, Role
from fleetchat.chat.options import ChatOptions
from fleetchat.chat.overflow import FittedPrompt, fitted_prompt
from fleetchat.chat.turn import Turn
from fleetchat.cli.fleet_changes import propose_cut
from fleetchat.config import Config
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.recipe import Recipe, find_recipe, known_recipes
from fleetchat.cutter.store import Store
from fleetchat.errors import FleetError
from fleetchat.fleet.configured import prepare_fleet, sampling_of, system_of
from fleetchat.fleet.coordinator import Fleet, FleetSession, open_fleet
from fleetchat.fleet.following import ConfigSource, Follower, Signature
from fleetchat.fleet.live import LiveKeeper
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.reply import TextDecoder
from fleetchat.fleet.session import GenerationRequest
from fleetchat.fleet.telemetry import Answer, FleetSnapshot
from fleetchat.paths import store_folder
from fleetchat.transport.tasks import open_tasks


def chat_runtime(
    config: Config, recipe: Recipe, report: Report, source: ConfigSource | None = None
) -> ChatRuntime:
    """The runtime of the chat as it is configured; with `source` it follows what the files say later."""
    settings = generation_settings(config, recipe)
    return ChatRuntime(
        LocalBackend(config, source), settings, report, snapshot_interval=1 / config.ui.refresh_hz
    )


def built_models() -> list[tuple[str, str]]:
    """Name and title of the recipes of which there is a build."""
    store = Store(store_folder())
    built = {name for manifest in store.builds() for name in manifest.recipes}
    return [(name, find_recipe(name).title) for name in sorted(known_recipes()) if name in built]


def generation_settings(config: Config, recipe: Recipe) -> GenerationSettings:
    """How replies are drawn: what is configured, else what suits the model."""
    return GenerationSettings(
        sampling=sampling_of(config, recipe.sampling),
        seed=config.sampling.seed,
        max_tokens=config.sampling.max_tokens,
        stop_strings=config.sampling.stop,
    )


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A build's tokenizer and template."""

    manifest: Manifest
    chat_format: ChatFormat
    system: str | None
    overflow: str

    @property
    def name(self) -> str:
        return self.manifest.model

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset(self.manifest.stop_ids)

    @property
    def configured(self) -> ChatOptions:
        return ChatOptions(system=self.system, overflow=self.overflow)

    def render(self, turn: Turn, *, context: int, max_tokens: int) -> FittedPrompt:
        system = self.system if turn.options.system is None else turn.options.system
        before = (Message(Role.SYSTEM, system),) if system else ()
        return fitted_prompt(
            self.chat_format,
            (*before, *turn.messages),
            context=context,
            max_tokens=max_tokens,
            drop_oldest=(turn.options.overflow or self.overflow) == "drop-oldest",
            continues=turn.continues,
        )

    def decoder(self) -> TextDecoder:
        return self.chat_format.decoder()


@dataclass(frozen=True, slots=True)
class LocalSession:
    """A session together with its fleet."""

    fleet: Fleet
    session: FleetSession

    @property
    def number(self) -> int:
        return self.session.number

    async def generate(
        self, request: GenerationRequest, decoder: TextDecoder, *, on_text: OnText, on_prefill: OnPrefill
    ) -> Answer:
        return await self.fleet.generate(
            self.session, request, decoder, on_text=on_text, on_prefill=on_prefill
        )

    def stop(self) -> None:
        self.session.stop()

    async def close(self) -> None:
        await self.fleet.close_session(self.session)


@dataclass(frozen=True, slots=True)
class LocalFleet:
    """An open fleet."""

    fleet: Fleet
    live: LiveKeeper
    read: Callable[[], Config]  # the configuration as it is now

    @property
    def context(self) -> int:
        return self.fleet.options.context

    def new_session(self) -> LocalSession:
        return LocalSession(self.fleet, self.fleet.new_session())

    def snapshot(self) -> FleetSnapshot:
        return self.fleet.snapshot()

    async def wait_failed(self) -> FleetError:
        return await self.fleet.wait_failed()

    async def propose_cut(self) -> ProposedCut:
        config = await trio.to_thread.run_sync(self.read)
        return propose_cut(config, self.live.report())


class LocalBackend:
    """Builds in a process of its own, starts embedded peers or dials the configured ones."""

    def __init__(self, config: Config, source: ConfigSource | None = None) -> None:
        self._config = config
        self._source = source
        self._seen: Signature = ()
        self._options: FleetOptions | None = None

    def choose(self, model: str) -> GenerationSettings:
        recipe = find_recipe(model)
        chosen = dataclasses.replace(self._config.model, recipe=model)
        self._config = dataclasses.replace(self._config, model=chosen)
        return generation_settings(self._config, recipe)

    async def prepare(self, on_build: OnBuild) -> LocalModel:
        if self._source is not None:
            self._seen = await trio.to_thread.run_sync(self._source.signature)
            read = await trio.to_thread.run_sync(self._source.read)
            self._config = dataclasses.replace(self._config, fleet=read.fleet, file=read.file)
        options = self._options = await prepare_fleet(
            self._config, on_build=lambda build: on_build(build.step, build.done, build.total)
        )
        manifest = options.manifest
        folder = Store(options.store_root).folder(manifest.build_key)
        chat_format = ChatFormat.load(
            folder / manifest.tokenizer.name,
            folder / manifest.template.name,
            bos_id=manifest.bos_id,
            stop_ids=manifest.stop_ids,
        )
        recipe = find_recipe(self._config.model.recipe)
        return LocalModel(manifest, chat_format, system_of(self._config, recipe), self._config.chat.overflow)

    @asynccontextmanager
    async def open_fleet(self, _model: ChatModel, on_start: OnStart) -> AsyncIterator[LocalFleet]:
        assert self._options is not None, "prepare comes first"
        async with open_fleet(self._options, on_progress=on_start) as fleet, open_tasks() as tasks:
            live = LiveKeeper(fleet)
            tasks.start_soon(live.run)
            if self._source is not None:
                tasks.start_soon(Follower(fleet, self._source, self._config, self._seen).run)
            yield LocalFleet(fleet, live, self._source.read if self._source else lambda: self._config)
            tasks.cancel_scope.cancel()
