"""Headway's own engine as a worker's: its thread, its runner, and the traffic of its group."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from headway.core.engine_kind import EngineKind
from headway.core.errors import HeadwayError
from headway.core.kv import KvUsage
from headway.core.load_order import LoadOrder
from headway.core.request import GenerationRequest
from headway.engine.batch import RunnerLostError
from headway.engine.engine import Engine
from headway.engine.stats import StepStats
from headway.runner.device_lock import DeviceLock
from headway.worker.engine_thread import EngineThread, StepListener
from headway.worker.metrics import CollectiveMetrics, PhaseMetrics
from headway.worker.runners import GeneratorRunner
from headway.worker.serving_engine import EngineFacts
from headway.worker.usage import usage_of

log = logging.getLogger(__name__)


class HeadwayEngine:
    """Implements `ServingEngine`.

    Attributes:
        thread: which alone touches the engine, for what only this engine does.
        runner: that computes its steps.
    """

    def __init__(self, order: LoadOrder, *, engine: Engine, runner: GeneratorRunner, device_lock: DeviceLock) -> None:
        self.facts = EngineFacts(kind=EngineKind.HEADWAY, weight_bytes=runner.weight_bytes)
        self.events = engine.events
        self.runner = runner
        self.thread: EngineThread[Engine]
        self._order = order
        self._engine = engine
        self._device_lock = device_lock
        self._traffic: CollectiveMetrics

    def start(self, listener: StepListener) -> StepStats:
        loop = asyncio.get_running_loop()
        stats = self._engine.stats()
        self._engine.tell_phases(PhaseMetrics(self._order.model))
        self._loop = loop
        self._listener = listener
        self.thread = EngineThread(self._engine, listener=listener, device_lock=self._device_lock, loop=loop)
        self._traffic = CollectiveMetrics(self._order.model, self.runner.traffic, loop=loop)
        self.thread.start()
        return stats

    def submit(
        self, requests: Sequence[GenerationRequest], *, refuse: Callable[[Sequence[str], HeadwayError], None]
    ) -> None:
        request_ids = [request.request_id for request in requests]

        def submit(engine: Engine) -> None:
            try:
                engine.submit_group(requests)
            except HeadwayError as error:
                self._loop.call_soon_threadsafe(refuse, request_ids, error)

        self.thread.post(submit)

    def cancel(self, request_ids: Sequence[str], *, on_ended: Callable[[Sequence[str]], None] | None = None) -> None:
        def end(engine: Engine) -> None:
            ended = [request_id for request_id in request_ids if engine.cancel(request_id)]
            if on_ended is not None:
                self._loop.call_soon_threadsafe(on_ended, ended)

        self.thread.post(end)

    async def usage(self, *, worker_id: str) -> KvUsage:
        order = self._order
        return await self.thread.call(
            lambda engine: usage_of(engine, worker_id=worker_id, model=order.model, owners=order.shard_owners)
        )

    async def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        return await self.thread.call_when_idle(
            lambda: self.runner.measure(
                prefill_tokens=prefill_tokens, num_decodes=num_decodes, context_tokens=context_tokens
            )
        )

    async def stop(self) -> None:
        """Also lets the group's other ranks go; the listener hears where they are lost."""
        self.thread.stop()
        await self.thread.join()
        self._traffic.stop()
        if self.thread.has_crashed:
            return
        try:
            await asyncio.to_thread(self._close_runner)
        except RunnerLostError as error:
            log.warning("the group's other ranks are lost: %s", error)
            self._listener.on_crash()

    def _close_runner(self) -> None:
        with self._device_lock.hold():
            self.runner.close()
