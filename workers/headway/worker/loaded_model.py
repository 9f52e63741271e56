"""A model that generates, loaded: its engine in a thread, and the streams of its callers."""

import asyncio
import logging
import time
import uuid

from headway.core.request import SequenceOutput
from headway.engine.batch import RunnerLostError
from headway.engine.engine import Engine
from headway.engine.events import BlockEventLog
from headway.engine.stats import StepStats
from headway.observe.tracing import Tracing
from headway.runner.model_runner import ModelRunner
from headway.worker.engine_thread import EngineThread
from headway.worker.metrics import StepMetrics, TrafficMetrics, TransferMetrics
from headway.worker.order import LoadOrder
from headway.worker.owner import Owner
from headway.worker.sessions import Sessions
from headway.worker.transfer.rate import FetchRate

log = logging.getLogger(__name__)


class LoadedModel:
    """A model with its engine, running.

    Attributes:
        epoch: names this cache; it changes with every load.
        transfers: counts what goes to other workers and comes from them.
        fetch_rate: at which it comes.
    """

    def __init__(
        self,
        order: LoadOrder,
        *,
        engine: Engine,
        runner: ModelRunner,
        owner: Owner,
        tracing: Tracing,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.order = order
        self.epoch = uuid.uuid4().hex
        self.runner = runner
        self.events: BlockEventLog = engine.events
        self.stats = engine.stats()
        self.thread = EngineThread(engine, listener=self, loop=loop)
        self.sessions = Sessions(self.thread, loop=loop, tracing=tracing)
        self._metrics = StepMetrics(
            order.model,
            num_host_blocks=order.num_host_blocks,
            max_num_batched_tokens=order.max_num_batched_tokens,
        )
        self.transfers = TransferMetrics(order.model)
        self.fetch_rate = FetchRate(time.monotonic)
        self._traffic = TrafficMetrics(order.model, runner.group.traffic, loop=loop)
        self._owner = owner
        self._has_crashed = False
        self.thread.start()

    @property
    def num_steps(self) -> int:
        return self.stats.num_steps

    def on_step(self, outputs: list[SequenceOutput], stats: StepStats) -> None:
        self._metrics.observe(stats, before=self.stats, num_sampled=sum(map(_num_tokens, outputs)))
        self.stats = stats
        self.sessions.publish(outputs, step_s=stats.duration_s)
        self._owner.on_change()

    def on_idle(self, stats: StepStats) -> None:
        self.stats = stats
        self._owner.on_change()

    def on_crash(self) -> None:
        self._has_crashed = True
        self.sessions.close()
        self._owner.on_crash()

    async def stop(self) -> None:
        """Ends the streams, and lets the group's other ranks go."""
        self.sessions.close()
        self.thread.stop()
        await self.thread.join()
        self._traffic.stop()
        if self._has_crashed:
            return
        try:
            await asyncio.to_thread(self.runner.close)
        except RunnerLostError as error:
            log.warning("the group's other ranks are lost: %s", error)
            self._owner.on_crash()


def _num_tokens(output: SequenceOutput) -> int:
    return len(output.token_ids) + sum(len(hypothesis.token_ids) for hypothesis in output.hypotheses)
