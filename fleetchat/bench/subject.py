"""The model under test: its shards, its whole IR, and prompts as token ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetchat.bench.pinning import pinned
from fleetchat.bench.setting import Setting
from fleetchat.bench.workloads import prompts
from fleetchat.chat.conversation import ChatFormat, Conversation
from fleetchat.cutter.manifest import Manifest
from fleetchat.cutter.store import Store
from fleetchat.engine.fast_settings import Choice, FastSettings
from fleetchat.errors import BuildError
from fleetchat.fleet.options import FleetOptions, embedded_peers
from fleetchat.fleet.provision import build_in_process
from fleetchat.peer.engines import settled
from fleetchat.peer.loading import EngineRequest

CONTEXT = 2048  # positions of one conversation
SETTLING_CELLS = 1024


@dataclass(frozen=True, slots=True)
class Subject:
    """One build. `whole` is the folder with the whole IR that it was cut from.

    `settings` are those that `fast` takes here with one thread, on both sides of a pair.
    """

    manifest: Manifest
    store: Store
    whole: Path
    chat_format: ChatFormat
    settings: Choice

    @property
    def fast(self) -> FastSettings:
        return self.settings.settings

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset(self.manifest.stop_ids)

    @property
    def whole_xml(self) -> Path:
        return self.whole / "openvino_model.xml"

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """`text` as a user's first message, through the model's own chat template."""
        return Conversation(self.chat_format, context=self.manifest.context).ask(text)

    def workload_ids(self, workload: str) -> list[tuple[int, ...]]:
        """All prompts of a workload as token ids."""
        return [self.prompt_ids(text) for text in prompts(workload)]

    def fleet_options(self, setting: Setting, *, context: int = CONTEXT) -> FleetOptions:
        """Embedded peers, one a stage, each with one thread and pinned to its core."""
        return FleetOptions(
            manifest=self.manifest,
            store_root=self.store.root,
            peers=embedded_peers(len(self.manifest.stages)),
            precision=setting.precision,
            kv="masked",
            context=min(context, self.manifest.context),
            threads=1,
            cores=setting.cores or None,
        )


async def prepare(setting: Setting, stages: int) -> Subject:
    """The build in `stages` stages, made when it is missing. Raises what a build raises."""
    setting.note(f"{setting.recipe} in {stages} stage{'s' if stages > 1 else ''}: looking for the shards")
    store = Store(setting.store_root)
    manifest = await build_in_process(
        setting.recipe,
        stages,
        store=store,
        source=setting.source,
        on_progress=lambda progress: setting.note(f"building: {progress.step}"),
    )
    whole = store.whole(manifest)
    if whole is None:
        raise BuildError(
            f"the whole model of {manifest.recipe} is not in the store",
            hint="`fleetchat shards rm` its builds, and they are made again with the whole model",
        )
    with pinned(setting.cores):
        settings = settled(_one_thread(setting, manifest, store.stage_xml(manifest, 0)))
    return Subject(manifest, store, whole, chat_format_of(store, manifest), settings)


def _one_thread(setting: Setting, manifest: Manifest, xml: Path) -> EngineRequest:
    return EngineRequest(
        xml=xml,
        manifest=manifest,
        entry=manifest.stages[0],
        precision=setting.precision,
        engine="masked",
        device="CPU",
        threads=1,
        cells=SETTLING_CELLS,
        on_step=setting.note,
    )


def chat_format_of(store: Store, manifest: Manifest) -> ChatFormat:
    """Of a build in the store. Raises ShardDamaged, SourceError."""
    folder = store.folder(manifest.build_key)
    return ChatFormat.load(
        folder / manifest.tokenizer.name,
        folder / manifest.template.name,
        bos_id=manifest.bos_id,
        stop_ids=manifest.stop_ids,
    )
