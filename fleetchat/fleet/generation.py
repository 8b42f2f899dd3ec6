"""One reply on its way: rounds of [slice → RESULT → commit] until a stop rule ends it.

A round feeds the ids that the chain does not hold yet and draws the next token. The chain then holds
every committed token but the pending one. Tokens that cannot end the reply become text while the chain is
at work on the next round already.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from fleetchat.errors import DrafterFailed, FleetchatError, FleetError, SliceFailed
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.counters import Counters
from fleetchat.fleet.draft.depth import Round
from fleetchat.fleet.draft.interface import NOTHING, Proposal
from fleetchat.fleet.feed import Feed
from fleetchat.fleet.reply import Reply, TextDecoder
from fleetchat.fleet.resumption import Resumptions
from fleetchat.fleet.session import GenerationRequest
from fleetchat.fleet.telemetry import Answer, FinishReason, Speculation
from fleetchat.fleet.trouble import Move
from fleetchat.wire.frames import Draw, ResultStatus

if TYPE_CHECKING:
    from fleetchat.fleet.coordinator import Fleet, FleetSession


@dataclass(slots=True)
class _Clock:
    """Times of one reply, seconds of the trio clock."""

    started: float
    first: float | None = None
    last: float = 0.0
    committed: int = 0

    def commit(self, now: float, tokens: int) -> None:
        if self.first is None:
            self.first = now
        self.last = now
        self.committed += tokens

    @property
    def ttft_ms(self) -> float:
        return 1000 * (self.first - self.started) if self.first is not None else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Decoding only: the first token's time is the TTFT."""
        if self.first is None or self.committed < 2 or self.last <= self.first:
            return 0.0
        return (self.committed - 1) / (self.last - self.first)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a round brought. `cells` are (live, dead) a stage."""

    at: float  # seconds of the trio clock
    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    reason: str
    cells: tuple[tuple[int, int], ...]


def _draw(request: GenerationRequest) -> Draw:
    sampling = request.sampling
    return Draw(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        penalty=sampling.repetition_penalty,
        seed=request.seed,
        reply_start=len(request.token_ids),
    )


class Generation:
    """Runs once. `stop` may be called at any time from the trio thread."""

    def __init__(
        self,
        fleet: Fleet,
        session: FleetSession,
        request: GenerationRequest,
        decoder: TextDecoder,
        *,
        on_text: Callable[[str], None],
        on_prefill: Callable[[int, int], None],
    ) -> None:
        self._fleet = fleet
        self._session = session
        self._request = request
        self._on_text = on_text
        self._on_prefill = on_prefill
        self._committed = list(request.token_ids)  # only appended to, see `ChainState.reusable`
        self._untold: _Outcome | None = None  # whose tokens are no text yet
        self._draw = _draw(request)
        self._reply = Reply(
            decoder,
            stop_ids=request.stop_ids,
            stop_strings=request.stop_strings,
            max_tokens=request.max_tokens,
            room=fleet.options.context - len(request.token_ids),
        )
        self._other_rows = 0  # of other sessions in the last batch that carried a slice of this one
        self._stopped = False
        self._chain = fleet.chain  # which the round under way uses
        self._waiting: trio.CancelScope | None = None  # for another epoch of the chain
        self._resumptions = Resumptions()
        self._clock = _Clock(started=trio.current_time())
        self._counters = Counters()
        self._cells: tuple[tuple[int, int], ...] = ()  # (live, dead) a stage, as last reported
        self._cached = 0
        self._fed_from = 0
        self._drafter = fleet.speculation.drafter.name
        notice = fleet.speculation.take_notice()
        self._notes: list[str] = [notice] if notice else []
        self.prefill_total = 0
        self.prefill_done = 0

    @property
    def committed(self) -> int:
        return len(self._committed)

    def stop(self) -> None:
        """End the reply; the RESULT that is under way is not waited for."""
        self._stopped = True
        self._fleet.admission.give_up(self._session.number)
        self._fleet.interleaver.give_up(self._session.number)
        if self._waiting is not None:
            self._waiting.cancel()

    async def run(self) -> Answer:
        """Rounds until the reply ends. Raises only what concerns the caller (no room, a bug)."""
        error: tuple[str, str] | None = None
        try:
            while self._reply.finish_reason is None:
                await self._round_or_recovery()
        except FleetchatError as failure:
            self._tell()
            if (
                not self._reply.token_ids
                and self._fleet.failure is None
                and not isinstance(failure, SliceFailed)
            ):
                raise
            error = (failure.message, failure.hint or "")
            self._emit(self._reply.end(FinishReason.ERROR))
        with suppress(FleetError):  # a chain that is lost has nothing to tidy
            if await self._fleet.holdings.tidy(self._session):
                self._count_compactions(1)
        return self._answer(error)

    async def _round_or_recovery(self) -> None:
        """A round; when the chain is lost in it, wait for the next epoch, which repeats it.

        Nothing is lost or doubled: a round commits only what its RESULT said, tokens are drawn by position.
        """
        try:
            await self._round()
        except SliceFailed:
            raise
        except FleetError:
            if self._chain.failure is None:
                raise
            self._tell()
            await self._wait_recovered(self._chain)

    async def _wait_recovered(self, lost: Chain) -> None:
        fleet = self._fleet
        with trio.CancelScope() as self._waiting:
            if self._stopped:
                self._waiting.cancel()
            await fleet.wait_recovered(lost)
            await fleet.admission.resume(self._session.number)
        self._waiting = None
        if self._stopped:
            self._emit(self._reply.end(FinishReason.CANCELLED))
        else:
            self._resumptions.begin(change := fleet.changes[-1])
            if isinstance(change, Move):
                self._notes.append(change.note)

    async def _round(self) -> None:
        proposal, draft_seconds = NOTHING, 0.0
        if self._fleet.speculation.drafts:
            proposal, draft_seconds = await self._propose()
        feed = await self._exchange(proposal.ids)
        if feed is None:
            self._emit(self._reply.end(FinishReason.CANCELLED))
            return
        assert feed.outcome is not None
        if feed.outcome.status is not ResultStatus.DRAWN:
            await self._fleet.holdings.drop_state(self._session)
            text = feed.outcome.fault_text or "it was left out, though nobody had stopped it"
            raise SliceFailed(feed.outcome.fault_code, f"a stage could not serve this reply: {text}")
        accepted, depth = feed.outcome.accepted, self._session.depth
        emitted = (*proposal.ids[:accepted], feed.outcome.token)
        outcome = _Outcome(
            trio.current_time(), emitted, len(proposal.ids), accepted, depth.reason, feed.cells
        )
        rows, seconds = feed.traversal or (len(feed.token_ids), 0.0)
        self._other_rows = rows - len(feed.token_ids)
        if len(feed.token_ids) == 1 + len(proposal.ids) and self._fleet.speculation.drafts:
            depth.record(Round(proposal, emitted, rows, seconds, draft_seconds))
        self._commit(outcome)

    async def _propose(self) -> tuple[Proposal, float]:
        """Drafts for the next round; none while the prompt is not fed, or where nothing would fit."""
        state, committed = self._session.state, self._committed
        speculation = self._fleet.speculation
        if speculation.rests(self._session.depth):
            return NOTHING, 0.0
        if state is None or state.reusable(committed) < len(committed) - 1:
            return NOTHING, 0.0
        untold = len(self._untold.tokens) if self._untold else 0
        room = min(self._reply.room_left - untold, self._fleet.options.context - len(committed)) - 1
        started = trio.current_time()
        try:
            proposal, seconds = await self._fleet.speculation.propose(
                self._session.number,
                committed,
                self._session.depth,
                room,
                self._draw,
                lambda: self._stopped,
                other_rows=self._other_rows,
            )
        except DrafterFailed as failure:
            self._notes.append(f"{failure.message}; the answer goes on without it")
            return NOTHING, 0.0
        if proposal.ids:
            number = self._session.number
            self._fleet.timeline.note_draft(number, len(proposal.ids), started, trio.current_time())
        return proposal, seconds

    def _commit(self, outcome: _Outcome) -> None:
        """Take a round's tokens; what is told of them waits for the next send, where nothing hangs on it."""
        self._untold = outcome
        started = self._clock.first is not None and not self._resumptions.refilling
        if started and self._reply.goes_on_after(outcome.tokens):
            self._committed.extend(outcome.tokens)
        else:
            self._tell(committed=False)

    def _tell(self, *, committed: bool = True) -> None:
        """Count the last round, and turn its tokens into text, if that is not done yet."""
        outcome, self._untold = self._untold, None
        if outcome is None:
            return
        for counters in self._all_counters:
            counters.count_round(outcome.drafted, outcome.accepted, outcome.reason)
        self._note_cells(outcome.cells)
        for token in outcome.tokens:
            if self._reply.finish_reason is not None:
                return
            before = len(self._reply.token_ids)
            text = self._reply.commit(token)
            if len(self._reply.token_ids) > before:
                if not committed:
                    self._committed.append(token)
                self._count_token(outcome.at)
            elif self._clock.first is None:
                self._clock.commit(outcome.at, 0)
            self._emit(text)

    def _count_token(self, now: float) -> None:
        self._clock.commit(now, 1)
        self._fleet.rates.add(now, self._session.number)
        self._fleet.tokens_of_epoch += 1
        self._resumptions.emitted(now)

    async def _exchange(self, drafts: tuple[int, ...]) -> Feed | None:
        """Feed what the chain lacks, and `drafts`; draw. None when the reply was stopped meanwhile."""
        session, fleet, committed = self._session, self._fleet, self._committed
        if fleet.holdings.held_while_waiting(session, committed) is not None:
            await self._until_shared()
        if self._stopped:
            self._tell()
            return None
        chain = self._chain = fleet.chain
        chain.check()
        state, compacted = await fleet.holdings.state_for(session, committed, len(drafts))
        if fleet.chain is not chain:
            chain.check()  # lost meanwhile, and brought back already: `state` is of the epoch before
        self._count_compactions(compacted)
        first = state.reusable(committed)
        rows = [*committed[first:], *drafts]
        feed = Feed(state, first, rows, self._draw, drafts=len(drafts), on_rows_done=self._note_prefilled)
        self._note_prefill(first, len(committed))
        lacking = len(committed) - first
        self._resumptions.fed(lacking)
        interleaver = fleet.interleaver
        with fleet.holdings.prompts.filling(session.number, committed) if lacking > 1 else nullcontext():
            completed = await interleaver.exchange(session.number, feed, self._tell)
        if feed.rollback:
            for counters in self._all_counters:
                counters.count_rollback(feed.rollback)
        if completed and not self._stopped:
            return feed
        with suppress(FleetError):  # a chain that is lost needs no CANCEL
            await interleaver.cancel(feed)
        return None

    async def _until_shared(self) -> None:
        """Wait for what another session is being filled with, or until the reply is stopped."""
        holdings, active = self._fleet.holdings, self._fleet.interleaver.active
        self._tell()
        active.discard(self._session.number)  # or the prompt that it waits for would be cut to let it stream
        with trio.CancelScope() as self._waiting:
            if self._stopped:
                self._waiting.cancel()
            while (held := holdings.held_while_waiting(self._session, self._committed)) is not None:
                self._note_prefill(held, self.committed)
                await holdings.prompts.changed()
        active.add(self._session.number)
        self._waiting = None

    def _note_prefill(self, first: int, total: int) -> None:
        if self._counters.rounds == 0 and not self._resumptions.refilling:
            self._cached = first
        if self._counters.rounds == 0 or self._resumptions.refilling:
            self._fed_from, self.prefill_done, self.prefill_total = first, first, total
            self._on_prefill(first, total)

    def _note_prefilled(self, rows: int) -> None:
        """`rows` of the feed are done on all stages."""
        if self._counters.rounds == 0 or self._resumptions.refilling:
            self.prefill_done = min(self._fed_from + rows, self.prefill_total)
            self._on_prefill(self.prefill_done, self.prefill_total)
            self._fleet.holdings.prompts.note()

    @property
    def _all_counters(self) -> tuple[Counters, ...]:
        return self._counters, self._session.counters, self._fleet.counters

    def _count_compactions(self, number: int) -> None:
        for counters in self._all_counters:
            counters.compactions += number

    def _note_cells(self, cells: tuple[tuple[int, int], ...]) -> None:
        self._cells = cells
        for stage, (live, dead) in zip(self._fleet.chain.stages, cells, strict=False):
            stage.record.cells_live, stage.record.cells_dead = live, dead

    def _emit(self, text: str) -> None:
        if text:
            self._on_text(text)

    def _answer(self, error: tuple[str, str] | None) -> Answer:
        counters = self._counters
        return Answer(
            text=self._reply.text,
            token_ids=tuple(self._reply.token_ids),
            finish_reason=self._reply.finish_reason or FinishReason.ERROR,
            seed=self._request.seed,
            prompt_tokens=len(self._request.token_ids),
            prompt_tokens_cached=self._cached,
            ttft_ms=self._clock.ttft_ms,
            tokens_per_s=self._clock.tokens_per_s,
            speculation=Speculation(
                drafter=self._drafter,
                rounds=counters.rounds,
                drafted=counters.drafted,
                accepted=counters.accepted,
                depth_histogram=tuple(counters.by_depth) if counters.drafted else (),
                rollbacks=counters.rollbacks,
                cells_masked=(counters.masked,) * len(self._fleet.chain.stages),
                cells_live=tuple(live for live, _ in self._cells),
                cells_dead=tuple(dead for _, dead in self._cells),
                compactions=counters.compactions,
            ),
            recoveries=self._resumptions.report(),
            error=error,
            notes=tuple(self._notes),
        )
