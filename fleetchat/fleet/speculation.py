"""The fleet's drafter, called off the trio thread when it computes, and each session's depth.

A drafter never changes the text; one that fails is dropped, and the answer goes on without it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path

import trio

from fleetchat.child import ABANDONABLE
from fleetchat.cutter.store import Store
from fleetchat.errors import DrafterFailed, InputError
from fleetchat.fleet.draft.combined import CombinedDrafter, what_is_left
from fleetchat.fleet.draft.costs import RoundCosts
from fleetchat.fleet.draft.depth import AdaptiveDepth, DepthPolicy, FixedDepth
from fleetchat.fleet.draft.interface import (
    NOTHING,
    ChooseDepth,
    Drafter,
    DraftKey,
    DraftSource,
    Proposal,
    ShouldStop,
    at_most,
)
from fleetchat.fleet.draft.ngram import NgramDrafter
from fleetchat.fleet.draft.none import NoDrafter
from fleetchat.fleet.options import FleetOptions, require_draft_model
from fleetchat.ids import Rollback
from fleetchat.wire.frames import Draw

DRAFTERS = ("none", "ngram", "model", "ngram+model")
MODEL_KEY = DraftKey(DraftSource.MODEL)


@dataclass(frozen=True, slots=True)
class _Question:
    """The arguments of `Drafter.propose`, and whose depth it is."""

    session: int
    committed: Sequence[int]
    policy: DepthPolicy
    depth: ChooseDepth
    draw: Draw
    should_stop: ShouldStop

    def put_to(self, drafter: Drafter) -> Proposal:
        return drafter.propose(self.session, self.committed, self.depth, self.draw, self.should_stop)


class Speculation:
    """One a fleet."""

    def __init__(self, drafter: Drafter, *, depth: int | None, max_draft: int, vocabulary: int) -> None:
        """`depth` None is adaptive. Drafts outside the target's vocabulary are not sent."""
        self.drafter = drafter
        self._vocabulary = vocabulary
        self.costs = RoundCosts()
        self._latest: AdaptiveDepth | None = None  # whose experience the next session begins with
        self.depth = depth  # of sessions made from now on
        self._max_draft = max_draft
        self._one_at_a_time = trio.CapacityLimiter(1)
        self._notice = ""

    def settle(self, options: FleetOptions) -> None:
        """Do without a drafter, and say so, where the engine that was chosen rules it out."""
        refused = refusal(options)
        if refused is not None:
            self.drafter, self._notice = NoDrafter(), f"{refused.message}; no drafts are made"

    def take_notice(self) -> str:
        """What is to be told with the next answer, once; empty = nothing."""
        notice, self._notice = self._notice, ""
        return notice

    @property
    def drafts(self) -> bool:
        """Whether there is a drafter at all."""
        return self.drafter.name != "none"

    def rests(self, policy: DepthPolicy) -> bool:
        """Whether a draft model is left alone in this round: it is far from paying, and asking costs time."""
        return self.drafter.name == "model" and policy.rest()

    def new_depth(self) -> DepthPolicy:
        """The depth of one session."""
        if self.depth is not None:
            return FixedDepth(min(self.depth, self._max_draft))
        latest = self._latest.heir() if self._latest else AdaptiveDepth(self.costs, self._max_draft)
        self._latest = latest
        return latest

    async def propose(
        self,
        session: int,
        committed: Sequence[int],
        policy: DepthPolicy,
        room: int,
        draw: Draw,
        should_stop: ShouldStop,
        *,
        other_rows: int = 0,
    ) -> tuple[Proposal, float]:
        """At most `room` drafts, and the seconds that they took; `other_rows` are those of the last batch.

        Raises DrafterFailed, once: the drafter was dropped then.
        """
        started = time.perf_counter()
        depth = at_most(partial(policy.choose, other_rows=other_rows), room)
        try:
            proposal = await self._ask(_Question(session, committed, policy, depth, draw, should_stop))
        except DrafterFailed:
            self.drafter = what_is_left(self.drafter)
            raise
        return self._checked(proposal, room), time.perf_counter() - started

    async def _ask(self, question: _Question) -> Proposal:
        """What costs nothing is asked here and now; only a model that is to draft goes to its thread."""
        drafter = self.drafter
        if isinstance(drafter, CombinedDrafter):
            free = question.put_to(drafter.first)
            if free.ids:
                return free
            drafted = await self._compute(drafter.second, question)
            return replace(drafted, guesses=drafted.guesses + free.guesses)
        if computes(drafter):
            return await self._compute(drafter, question)
        free = question.put_to(drafter)
        if not free.guesses:
            question.policy.note_nothing_found()
        return free

    async def _compute(self, drafter: Drafter, question: _Question) -> Proposal:
        count = question.depth(MODEL_KEY)
        if count <= 0:
            return NOTHING
        settled = replace(question, committed=tuple(question.committed), depth=lambda key: count)
        return await trio.to_thread.run_sync(settled.put_to, drafter, limiter=self._one_at_a_time)

    def _checked(self, proposal: Proposal, room: int) -> Proposal:
        """A drafter may be wrong, it must not break the link: peers refuse ids that no token has."""
        known = takewhile(lambda token: 0 <= token < self._vocabulary, proposal.ids[: max(0, room)])
        ids = tuple(known)
        return proposal if len(ids) == len(proposal.ids) else replace(proposal, ids=ids)

    def forget(self, session: int) -> None:
        self.drafter.forget(session)


def computes(drafter: Drafter) -> bool:
    """Whether a call may take milliseconds."""
    return drafter.name in {"model", "ngram+model"}


def check_speculation(options: FleetOptions) -> None:
    """Raises InputError when the drafter that the user named cannot be used with this model at all."""
    if options.drafter not in DRAFTERS:
        raise InputError(f"there is no drafter {options.drafter!r}: {', '.join(DRAFTERS)}")
    if options.drafter == "none":
        return
    require_draft_model(options.drafter, options.draft_model)
    if options.drafter_asked and (refused := refusal(options)) is not None:
        raise refused


def refusal(options: FleetOptions) -> InputError | None:
    """Why there can be no drafts for this model on this engine; None = there can. `auto` may become paged."""
    manifest = options.manifest
    if options.drafter == "none":
        return None
    what, hint = f"{manifest.model} cannot be used with speculation", "use --drafter none"
    if manifest.rollback is Rollback.RESTART:
        return InputError(f"{what}: its recurrent states cannot be rolled back", hint=hint)
    if options.kv != "masked" or manifest.rollback is Rollback.MASK:
        return None
    if manifest.window:
        reason = f"its sliding window of {manifest.window:,} tokens counts cells that a rollback hides"
    else:
        reason = f"after a rollback its logits differ by {manifest.self_check.rollback:.2g}"
    return InputError(f"{what} on the engine masked: {reason}", hint=f"{hint}, or --kv paged if it runs here")


async def open_speculation(options: FleetOptions) -> Speculation:
    """Load what the drafter needs. Raises InputError: no draft, another vocabulary, not a model.

    Cancelled, it leaves a model behind that loads: that takes seconds, and OpenVINO cannot be interrupted.
    """
    check_speculation(options)
    drafter: Drafter = NoDrafter()
    if "ngram" in options.drafter:
        drafter = NgramDrafter()
    if "model" in options.drafter:
        assert options.draft_model is not None
        loaded = await trio.to_thread.run_sync(
            _load_model, options, options.draft_model, thread_name=ABANDONABLE, abandon_on_cancel=True
        )
        drafter = CombinedDrafter(drafter, loaded) if "ngram" in options.drafter else loaded
    return Speculation(
        drafter,
        depth=options.draft_depth,
        max_draft=options.max_draft,
        vocabulary=options.manifest.vocabulary,
    )


def _load_model(options: FleetOptions, path: Path) -> Drafter:
    from fleetchat.fleet.draft.model_drafter import load_model_drafter

    manifest = options.manifest
    return load_model_drafter(
        path,
        tokenizer=Store(options.store_root).folder(manifest.build_key) / manifest.tokenizer.name,
        target_name=manifest.model,
        vocabulary=manifest.vocabulary,
        precision=options.precision,
        threads=options.threads or 1,
    )
