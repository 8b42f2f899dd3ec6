"""What one chain can take: prompts, batches, cells (pure)."""

from __future__ import annotations

from fleetchat.errors import PromptError
from fleetchat.fleet.batching import ChainLimits
from fleetchat.fleet.chain import Chain
from fleetchat.fleet.opening import MAX_SLICES
from fleetchat.fleet.options import FleetOptions
from fleetchat.fleet.room import BlockRoom
from fleetchat.fleet.session import GenerationRequest


def block_room(chain: Chain) -> BlockRoom | None:
    """How cells are shared out; None for engines that reserve them for each session."""
    size = max(stage.ready.block_size for stage in chain.stages if stage.ready)
    return BlockRoom(chain.cells, size) if size > 1 else None


def check_prompt(request: GenerationRequest, context: int) -> None:
    """Raises PromptError when there is nothing to continue or no room for one token."""
    if not request.token_ids:
        raise PromptError("the prompt is empty")
    if len(request.token_ids) >= context:
        raise PromptError(
            f"the prompt has {len(request.token_ids):,} tokens, the context holds {context:,} with the reply",
            hint="shorten it, start a new chat, or raise --context",
        )


def chain_limits(options: FleetOptions, chain: Chain) -> ChainLimits:
    """What the batch former must keep to: the least that any stage can do."""
    ready = [stage.ready for stage in chain.stages if stage.ready]
    return ChainLimits(
        stages=len(chain.stages),
        window=chain.window,
        sessions_per_batch=min(stage.sessions_per_batch for stage in ready),
        max_rows=options.context,
        max_slices=MAX_SLICES,
    )
