"""A model that does not generate, loaded: its one-pass engine in a thread, and the calls that wait for it."""

import asyncio
import logging
import uuid

from headway.core.engine_kind import EngineKind
from headway.core.infer import InferOutput
from headway.core.load import LoadReport
from headway.core.load_order import LoadOrder
from headway.encoder.engine import EncoderEngine
from headway.encoder.stats import EncoderStats
from headway.engine.batch import RunnerLostError
from headway.engine.events import BlockEventLog
from headway.observe.tracing import Tracing
from headway.runner.device_lock import DeviceLock
from headway.worker.engine_thread import EngineThread
from headway.worker.infer_calls import InferCalls
from headway.worker.metrics import CollectiveMetrics, EncoderMetrics, EngineInfo
from headway.worker.owner import Owner
from headway.worker.runners import OnePassRunner

log = logging.getLogger(__name__)


class LoadedEncoder:
    """An encoder with its engine, running: the counterpart of `LoadedModel`. `events` stays empty: an encoder has no
    prefix cache.
    """

    def __init__(
        self,
        order: LoadOrder,
        *,
        engine: EncoderEngine,
        runner: OnePassRunner,
        device_lock: DeviceLock,
        owner: Owner,
        tracing: Tracing,
        backend: str = "",
    ) -> None:
        """`backend`: what runs the layers, in words; empty where nothing was asked for."""
        loop = asyncio.get_running_loop()
        self.order = order
        self.epoch = uuid.uuid4().hex
        self.runner = runner
        self.backend = backend
        self.events = BlockEventLog(num_events=1)
        self.stats = engine.stats()
        self._engine = engine
        self.thread = EngineThread(engine, listener=self, device_lock=device_lock, loop=loop)
        engine.join(owner.line, wake=self.thread.wake)
        self.sessions = InferCalls(self.thread, loop=loop, tracing=tracing)
        self._metrics = EncoderMetrics(order.model)
        self._engine_info = EngineInfo(order.model, kind=EngineKind.HEADWAY)
        self._traffic = CollectiveMetrics(order.model, runner.traffic, loop=loop)
        self._owner = owner
        self._has_crashed = False
        runner.notify(self.thread.wake)
        self.thread.start()

    @property
    def num_steps(self) -> int:
        return self.stats.num_steps

    @property
    def weight_bytes(self) -> int:
        return self.runner.weight_bytes

    @property
    def holder(self) -> object:
        """What holds the memory: once it is gone, that is free."""
        return self.runner

    async def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds of one synthetic step; FailedPreconditionError while requests run."""
        return await self.thread.call_when_idle(
            lambda: self.runner.measure(
                prefill_tokens=prefill_tokens, num_decodes=num_decodes, context_tokens=context_tokens
            )
        )

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
            backend=self.backend,
        )

    def on_step(self, outputs: list[InferOutput], stats: EncoderStats) -> None:
        if stats.num_steps > self.stats.num_steps:  # else a batch has only been started
            self._metrics.observe(stats)
        self.stats = stats
        self.sessions.publish(outputs)
        self._owner.on_change()

    def on_idle(self, stats: EncoderStats) -> None:
        self.stats = stats
        self._owner.on_change()

    def on_crash(self) -> None:
        self._has_crashed = True
        self.sessions.cancel_all()
        self._owner.on_crash()

    async def stop(self) -> None:
        """Ends what runs, and has the group's other ranks let the model go."""
        self.sessions.cancel_all()
        self.thread.stop()
        await self.thread.join()
        self._engine.leave()
        self._traffic.stop()
        self._engine_info.remove()
        if self._has_crashed:
            return
        try:
            await asyncio.to_thread(self.runner.close)
        except RunnerLostError as error:
            log.warning("the group's other ranks are lost: %s", error)
            self._owner.on_crash()
