"""A model that generates, loaded: its engine in a thread, and the streams of its callers."""

import asyncio
import logging
import time
import uuid

from headway.core.load import LoadReport
from headway.core.load_order import LoadOrder
from headway.core.request import SequenceOutput
from headway.engine.batch import RunnerLostError
from headway.engine.engine import Engine
from headway.engine.events import BlockEventLog
from headway.engine.stats import StepStats
from headway.observe.tracing import Tracing
from headway.runner.device_lock import DeviceLock
from headway.worker.engine_thread import EngineThread
from headway.worker.metrics import CacheInfo, CollectiveMetrics, PhaseMetrics, StepMetrics, TransferMetrics
from headway.worker.owner import Owner
from headway.worker.runners import GeneratorRunner
from headway.worker.sessions import Sessions
from headway.worker.transfer.rate import FetchRate

log = logging.getLogger(__name__)


class LoadedModel:
    """A model with its engine, running.

    Attributes:
        epoch: names this cache; it changes with every load.
        transfers: counts the blocks sent to other workers and fetched from them.
        fetch_rate: how fast blocks come from other workers.
    """

    def __init__(
        self,
        order: LoadOrder,
        *,
        engine: Engine,
        runner: GeneratorRunner,
        device_lock: DeviceLock,
        owner: Owner,
        tracing: Tracing,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.order = order
        self.epoch = uuid.uuid4().hex
        self.runner = runner
        self.events: BlockEventLog = engine.events
        self.thread = EngineThread(engine, listener=self, device_lock=device_lock, loop=loop)
        self.sessions = Sessions(self.thread, loop=loop, tracing=tracing)
        self._metrics = StepMetrics(
            order.model,
            stats=engine.stats(),
            num_host_blocks=order.num_host_blocks,
            max_num_batched_tokens=order.max_num_batched_tokens,
        )
        engine.tell_phases(PhaseMetrics(order.model))
        self._cache_info = CacheInfo(order)
        self.transfers = TransferMetrics(order.model)
        self.fetch_rate = FetchRate(time.monotonic)
        self._traffic = CollectiveMetrics(order.model, runner.traffic, loop=loop)
        self._device_lock = device_lock
        self._owner = owner
        self._has_crashed = False
        self.thread.start()

    @property
    def stats(self) -> StepStats:
        """The stats of the latest step."""
        return self._metrics.stats

    @property
    def num_steps(self) -> int:
        return self.stats.num_steps

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
        self._has_crashed = True
        self.sessions.close()
        self._owner.on_crash()

    async def stop(self) -> None:
        """Ends what runs, and lets the group's other ranks go."""
        self.sessions.close()
        self.thread.stop()
        await self.thread.join()
        self._traffic.stop()
        self._cache_info.remove()
        if self._has_crashed:
            return
        try:
            await asyncio.to_thread(self._close_runner)
        except RunnerLostError as error:
            log.warning("the group's other ranks are lost: %s", error)
            self._owner.on_crash()

    def _close_runner(self) -> None:
        with self._device_lock.hold():
            self.runner.close()


def _num_tokens(output: SequenceOutput) -> int:
    """Returns the number of tokens in all hypotheses of a beam search."""
    return sum(len(hypothesis.token_ids) for hypothesis in output.hypotheses)
