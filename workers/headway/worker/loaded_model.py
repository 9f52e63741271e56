"""A model that generates, loaded: its engine, and the streams of its callers."""

import asyncio
import time
import uuid

from headway.core.engine_kind import Feature, lacks
from headway.core.load import LoadReport
from headway.core.load_order import LoadOrder
from headway.core.request import SequenceOutput
from headway.engine.stats import StepStats
from headway.observe.tracing import Tracing
from headway.worker.headway_engine import HeadwayEngine
from headway.worker.metrics import CacheInfo, EngineInfo, StepMetrics, TransferMetrics
from headway.worker.owner import Owner
from headway.worker.serving_engine import ServingEngine
from headway.worker.sessions import Sessions
from headway.worker.transfer.rate import FetchRate


class LoadedModel:
    """A model with its engine, running.

    Attributes:
        engine: that computes it.
        epoch: names this cache; it changes with every load.
        transfers: counts the blocks sent to other workers and fetched from them.
        fetch_rate: how fast blocks come from other workers.
    """

    def __init__(self, order: LoadOrder, *, engine: ServingEngine, owner: Owner, tracing: Tracing) -> None:
        self.order = order
        self.engine = engine
        self.epoch = uuid.uuid4().hex
        self.events = engine.events
        self.sessions = Sessions(engine, loop=asyncio.get_running_loop(), tracing=tracing)
        self._metrics = StepMetrics(
            order.model,
            stats=engine.start(self),
            num_host_blocks=order.num_host_blocks,
            max_num_batched_tokens=order.max_num_batched_tokens,
        )
        self._cache_info = CacheInfo(order)
        self._engine_info = EngineInfo(order.model, kind=engine.facts.kind, version=engine.facts.version)
        self.transfers = TransferMetrics(order.model)
        self.fetch_rate = FetchRate(time.monotonic)
        self._owner = owner

    @property
    def stats(self) -> StepStats:
        """The stats of the latest step."""
        return self._metrics.stats

    @property
    def num_steps(self) -> int:
        return self.stats.num_steps

    @property
    def weight_bytes(self) -> int:
        return self.engine.facts.weight_bytes

    @property
    def holder(self) -> object:
        """What holds the memory: once it is gone, that is free."""
        return self.engine.runner if isinstance(self.engine, HeadwayEngine) else self.engine

    def own_engine(self, feature: Feature) -> HeadwayEngine:
        """Headway's own engine, for a feature that only it has; FailedPreconditionError where another one serves."""
        if not isinstance(self.engine, HeadwayEngine):
            raise lacks(self.engine.facts.kind, feature, model=self.order.model)
        return self.engine

    async def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds of one synthetic step; see `ServingEngine.measure`."""
        return await self.engine.measure(
            prefill_tokens=prefill_tokens, num_decodes=num_decodes, context_tokens=context_tokens
        )

    def report(self, state: str) -> LoadReport:
        order, stats = self.order, self.stats
        return LoadReport(
            model=order.model,
            state=state,
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            num_pending_prefill_tokens=stats.num_pending_prefill_tokens,
            num_context_tokens=stats.num_context_tokens,
            num_blocks=order.num_blocks,
            num_free_blocks=stats.num_free_blocks + stats.num_cached_blocks,
            max_num_seqs=order.max_num_seqs,
            max_num_batched_tokens=order.max_num_batched_tokens,
            max_model_len=order.max_model_len,
            block_size=order.block_size,
            num_preemptions=stats.num_preemptions,
            num_prefix_hit_tokens=stats.num_prefix_hits,
            num_prefix_query_tokens=stats.num_prefix_queries,
            fetch_bytes_per_s=self.fetch_rate.bytes_per_s,
            work=stats.work,
            adapters=stats.adapters,
        )

    def on_step(self, outputs: list[SequenceOutput], stats: StepStats) -> None:
        num_sampled = sum([_num_tokens(output) if output.hypotheses else len(output.token_ids) for output in outputs])
        self._metrics.observe(stats, num_sampled=num_sampled)
        self.sessions.publish(outputs, step_s=stats.duration_s)
        self._owner.on_change()

    def on_idle(self, stats: StepStats) -> None:
        self._metrics.stats = stats
        self._owner.on_change()

    def on_crash(self) -> None:
        self.sessions.close()
        self._owner.on_crash()

    async def stop(self) -> None:
        """Ends what runs, and lets the group's other ranks go."""
        self.sessions.close()
        await self.engine.stop()
        self._cache_info.remove()
        self._engine_info.remove()


def _num_tokens(output: SequenceOutput) -> int:
    """Returns the number of tokens in all hypotheses of a beam search."""
    return sum(len(hypothesis.token_ids) for hypothesis in output.hypotheses)
