"""The seam between a worker and what computes a model that generates: an engine is one implementation of it.

The servicer, load reports, block events, drains and measuring know only this. What an engine does besides, such as
pinning prefixes or handing over blocks, is asked of its own class, after its declared features were looked at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.engine_kind import FEATURES, EngineKind, Feature
from headway.core.errors import HeadwayError
from headway.core.kv import KvUsage
from headway.core.request import GenerationRequest
from headway.engine.events import BlockEventLog
from headway.engine.stats import StepStats
from headway.worker.engine_thread import StepListener


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine is.

    Attributes:
        version: of its software; empty where it is Headway's own.
        weight_bytes: of the weights in memory.
    """

    kind: EngineKind
    version: str = ""
    weight_bytes: int

    @property
    def features(self) -> frozenset[Feature]:
        return FEATURES[self.kind]


class ServingEngine(Protocol):
    """A model's engine. Its methods are called on the event loop, and it calls back there.

    Attributes:
        events: what its prefix cache stores and drops, block by block, under the names of `core.block_hash`.
    """

    facts: EngineFacts
    events: BlockEventLog

    def start(self, listener: StepListener) -> StepStats:
        """Begins to compute; the listener hears the outputs of each step. Returns the stats before the first."""

    def submit(
        self, requests: Sequence[GenerationRequest], *, refuse: Callable[[Sequence[str], HeadwayError], None]
    ) -> None:
        """Queues the sequences of one prompt, all or none; `refuse` hears of those that it does not take."""

    def cancel(self, request_ids: Sequence[str], *, on_ended: Callable[[Sequence[str]], None] | None = None) -> None:
        """Takes sequences back, all before another step begins.

        Args:
            on_ended: hears which of them had not ended by themselves, after the listener has heard all outputs that
                they had until then.
        """

    async def usage(self, *, worker_id: str) -> KvUsage:
        """How its KV blocks are used now."""

    async def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds of one synthetic step.

        Raises:
            FailedPreconditionError: requests run, or the engine cannot time steps so.
        """

    async def stop(self) -> None:
        """Ends what runs and frees the memory."""
