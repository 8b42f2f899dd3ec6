"""A small model of the same vocabulary drafts, drawing its tokens as the chain draws its own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fleetchat.engine.precision import Precision
from fleetchat.engine.sampling import draw_token
from fleetchat.errors import DrafterFailed
from fleetchat.fleet.draft.following import Following
from fleetchat.fleet.draft.interface import (
    NOTHING,
    ChooseDepth,
    DraftKey,
    DraftSource,
    Guess,
    Proposal,
    ShouldStop,
    never,
)
from fleetchat.fleet.draft.model import DraftModel, reason
from fleetchat.fleet.draft.vocabulary import require_same_vocabulary
from fleetchat.wire.frames import Draw

SESSIONS = 8  # caches that are kept, the ones used most recently
KEY = DraftKey(DraftSource.MODEL)


class Cache(Protocol):
    """One session of a model; `model.DraftCache` is the real one."""

    @property
    def length(self) -> int: ...

    def truncate(self, length: int) -> None: ...

    def feed(
        self, token_ids: Sequence[int], should_stop: ShouldStop = never
    ) -> NDArray[np.float32] | None: ...


class Model(Protocol):
    name: str

    def new_cache(self) -> Cache: ...


@dataclass(slots=True)
class _Session:
    """`held[p]` is the id at position p of the cache."""

    cache: Cache
    held: list[int] = field(default_factory=list)
    following: Following = field(default_factory=Following)


class ModelDrafter:
    """Implements `interface.Drafter`. `vocabulary` is the width of the target's logits.

    Each draft is drawn with the chain's settings and keyed noise, so a draft model that knew the
    target's logits would be right every time. The last draft is not fed: when it is accepted, it is
    among the ids that the next call feeds.
    """

    name = "model"

    def __init__(self, model: Model, *, vocabulary: int, sessions: int = SESSIONS) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._most = sessions
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._forgotten: set[int] = set()
        self._lock = threading.Lock()

    def propose(
        self,
        session: int,
        committed: Sequence[int],
        depth: ChooseDepth,
        draw: Draw,
        should_stop: ShouldStop = never,
    ) -> Proposal:
        with self._lock:
            self._drop_forgotten()
            count = depth(KEY)
            if count <= 0:
                return NOTHING
            try:
                return self._draft(session, committed, count, draw, should_stop)
            except Exception as error:  # whatever it is: without drafts the answer goes on
                self._sessions.pop(session, None)
                raise DrafterFailed(
                    f"the draft model {self._model.name} failed: {reason(error)}",
                    hint="the answer goes on without it",
                ) from error

    def forget(self, session: int) -> None:
        """At once when no draft is under way, else before the next one."""
        self._forgotten.add(session)
        if self._lock.acquire(blocking=False):
            try:
                self._drop_forgotten()
            finally:
                self._lock.release()

    def _draft(
        self, session: int, committed: Sequence[int], count: int, draw: Draw, should_stop: ShouldStop
    ) -> Proposal:
        state = self._session(session)
        self._roll_back(state, committed, draw)
        rows: Sequence[int] = committed[len(state.held) :]
        caught_up = len(rows)
        penalised = list(committed[draw.reply_start :]) if draw.penalty != 1.0 else []
        drafts: list[int] = []
        while len(drafts) < count:
            logits = state.cache.feed(rows, should_stop)
            fed = state.cache.length - len(state.held)
            state.held.extend(rows[:fed])
            if logits is None:
                break
            token = draw_token(logits[: self._vocabulary], state.cache.length, draw, penalised + drafts)
            drafts.append(token)
            rows = (token,)
        ids = tuple(drafts)
        return Proposal(ids, (Guess(KEY, ids),) if ids else (), caught_up)

    def _roll_back(self, state: _Session, committed: Sequence[int], draw: Draw) -> None:
        """Keep what is right, but for the last committed id: the row behind it gives the first draft."""
        keep = min(state.following.common(state.held, committed, draw), len(committed) - 1)
        if keep < len(state.held):
            state.cache.truncate(keep)
            del state.held[keep:]

    def _session(self, session: int) -> _Session:
        state = self._sessions.get(session)
        if state is None:
            state = self._sessions[session] = _Session(self._model.new_cache())
        self._sessions.move_to_end(session)
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return state

    def _drop_forgotten(self) -> None:
        while self._forgotten:
            self._sessions.pop(self._forgotten.pop(), None)


def load_model_drafter(
    path: Path,
    *,
    tokenizer: Path,
    target_name: str,
    vocabulary: int,
    precision: Precision | str,
    threads: int,
) -> ModelDrafter:
    """The draft model at `path` (folder or XML) for a target with `tokenizer` (its `tokenizer.json`).

    Takes as long as compiling the model: call it in a worker thread. Raises InputError when the
    vocabularies differ or the model cannot be used.
    """
    folder = path if path.is_dir() else path.parent
    model = DraftModel(path, precision=precision, threads=threads)
    require_same_vocabulary(
        tokenizer, folder / "tokenizer.json", target_name=target_name, draft_name=model.name
    )
    return ModelDrafter(model, vocabulary=vocabulary)
