"""A model that does not generate, loaded: its one-pass engine in a thread, and the calls that wait for it."""

import asyncio
import uuid

from headway.core.infer import InferOutput
from headway.core.load import LoadReport
from headway.encoder.engine import EncoderEngine
from headway.encoder.stats import EncoderStats
from headway.engine.events import BlockEventLog
from headway.observe.tracing import Tracing
from headway.runner.encoder_runner import EncoderRunner
from headway.worker.engine_thread import EngineThread
from headway.worker.infer_calls import InferCalls
from headway.worker.metrics import EncoderMetrics
from headway.worker.order import LoadOrder
from headway.worker.owner import Owner


class LoadedEncoder:
    """The counterpart of `LoadedModel`. `events` stays empty: an encoder has no prefix cache."""

    def __init__(
        self,
        order: LoadOrder,
        *,
        engine: EncoderEngine,
        runner: EncoderRunner,
        owner: Owner,
        tracing: Tracing,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.order = order
        self.epoch = uuid.uuid4().hex
        self.runner = runner
        self.events = BlockEventLog(num_events=1)
        self.stats = engine.stats()
        self.thread = EngineThread(engine, listener=self, loop=loop)
        self.sessions = InferCalls(self.thread, loop=loop, tracing=tracing)
        self._metrics = EncoderMetrics(order.model)
        self._owner = owner
        self.thread.start()

    @property
    def num_steps(self) -> int:
        return self.stats.num_steps

    def report(self, state: str) -> LoadReport:
        stats, order = self.stats, self.order
        return LoadReport(
            model=order.model,
            state=state,
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            num_pending_prefill_tokens=stats.num_pending_tokens,
            max_num_seqs=order.max_num_seqs,
            max_num_batched_tokens=order.max_num_batched_tokens,
            max_model_len=order.max_model_len,
            block_size=order.block_size,
        )

    def on_step(self, outputs: list[InferOutput], stats: EncoderStats) -> None:
        self._metrics.observe(stats)
        self.stats = stats
        self.sessions.publish(outputs)
        self._owner.on_change()

    def on_idle(self, stats: EncoderStats) -> None:
        self.stats = stats
        self._owner.on_change()

    def on_crash(self) -> None:
        self._owner.on_crash()

    async def stop(self) -> None:
        self.sessions.cancel_all()
        self.thread.stop()
        await self.thread.join()
