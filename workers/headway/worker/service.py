"""A worker's life: starting, loading, ready, draining; and what others may ask of it meanwhile."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, NotFoundError, UnavailableError
from headway.core.load import LoadReport
from headway.core.request import GenerationRequest, SequenceOutput
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.events import BlockEventLog
from headway.engine.stats import StepStats
from headway.observe.tracing import Tracing
from headway.runner.model_runner import ModelRunner
from headway.store.checkpoint import read_checkpoint
from headway.worker.engine_thread import EngineThread
from headway.worker.metrics import StepMetrics
from headway.worker.sessions import Session, Sessions

log = logging.getLogger(__name__)

_QUIET_S = 5.0

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """What the controller wants this worker to serve; the assignment of a plan."""

    plan_id: str
    model: str
    directory: Path
    dtype: str
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_cache: bool


class LoadedModel:
    """A model with its engine, running. `epoch` names this cache: it changes with every load."""

    def __init__(
        self,
        order: LoadOrder,
        *,
        engine: Engine,
        runner: ModelRunner,
        on_change: Callable[[], None],
        on_crash: Callable[[], None],
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
        self._metrics = StepMetrics(order.model)
        self._on_change = on_change
        self._on_crash = on_crash
        self.thread.start()

    def on_step(self, outputs: list[SequenceOutput], stats: StepStats) -> None:
        self._metrics.observe(stats, before=self.stats, num_sampled=len(outputs))
        self.stats = stats
        self.sessions.publish(outputs, step_s=stats.duration_s)
        self._on_change()

    def on_idle(self, stats: StepStats) -> None:
        self.stats = stats
        self._on_change()

    def on_crash(self) -> None:
        self._on_crash()

    async def stop(self) -> None:
        self.sessions.close()
        self.thread.stop()
        await self.thread.join()


class WorkerService:
    """One worker. At most one model is loaded at a time.

    Args:
        on_state: awaited with (state, model) whenever they change, to renew the lease.
        on_crash: called when the engine gave up; the process should end and be restarted.
    """

    def __init__(
        self,
        worker_id: str,
        *,
        hardware: Hardware,
        on_state: Callable[[str, str], None],
        on_crash: Callable[[], None],
        tracing: Tracing,
    ) -> None:
        self.worker_id = worker_id
        self.hardware = hardware
        self.state = "starting"
        self.loaded: LoadedModel | None = None
        self.is_stopped = False
        self._on_state = on_state
        self._on_crash = on_crash
        self._tracing = tracing
        self._loading = asyncio.Lock()
        self._changed = asyncio.Event()

    def require_loaded(self, model: str = "") -> LoadedModel:
        """The loaded model, if it is `model` (or whichever, when empty)."""
        if self.loaded is None:
            raise UnavailableError(
                f"Worker {self.worker_id} has no model loaded yet.", hint="Try again in a moment.", retry_after_s=1.0
            )
        if model and model != self.loaded.order.model:
            raise NotFoundError(
                f"Worker {self.worker_id} serves '{self.loaded.order.model}', not '{model}'.", field="model"
            )
        return self.loaded

    async def load(self, order: LoadOrder, *, progress: Progress) -> None:
        """Replaces the loaded model. `progress` is called from another thread with (fraction, stage)."""
        async with self._loading:
            if self.loaded is not None:
                previous, self.loaded = self.loaded, None
                await previous.stop()
            self._set_state("loading", "")
            started_s = time.perf_counter()
            try:
                engine, runner = await asyncio.to_thread(_build, order, self.hardware, progress)
            except BaseException:
                self._set_state("starting", "")
                raise
            self.loaded = LoadedModel(
                order,
                engine=engine,
                runner=runner,
                on_change=self._notify,
                on_crash=self._on_crash,
                tracing=self._tracing,
            )
            self._set_state("ready", order.model)
            log.info("loaded %s in %.1f s", order.model, time.perf_counter() - started_s)

    def open_session(self) -> Session:
        return Session(self.require_loaded().sessions)

    def submit(self, session: Session, request: GenerationRequest, *, traceparent: str) -> None:
        """Queues a sequence; refused with UnavailableError while draining."""
        self.require_loaded(request.model)
        if self.state == "draining":
            raise UnavailableError(f"Worker {self.worker_id} is draining.", hint="Another worker takes the request.")
        session.submit(request, traceparent=traceparent)

    async def measure_step(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds of one synthetic step; FailedPreconditionError while requests run, or did a moment ago.

        A request that arrives meanwhile waits for the step, so steps are measured only where none is likely.
        """
        loaded = self.require_loaded()
        if loaded.sessions.idle_s() < _QUIET_S:
            raise FailedPreconditionError(
                f"The worker served requests within the last {_QUIET_S:.0f} s.", hint="Try again when it is idle."
            )
        return await loaded.thread.call_when_idle(
            lambda: loaded.runner.measure(
                prefill_tokens=prefill_tokens, num_decodes=num_decodes, context_tokens=context_tokens
            )
        )

    async def drain(self, *, deadline_s: float) -> int:
        """Takes no more sequences, waits for those that run; returns how many the deadline cut off."""
        if self.loaded is None:
            return 0
        self._set_state("draining", self.loaded.order.model)
        try:
            await asyncio.wait_for(self.loaded.sessions.wait_until_idle(), deadline_s)
        except TimeoutError:
            return self.loaded.sessions.cancel_all()
        return 0

    def report(self) -> LoadReport:
        if self.loaded is None:
            return LoadReport(state=self.state)
        order, stats = self.loaded.order, self.loaded.stats
        return LoadReport(
            model=order.model,
            state=self.state,
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
        )

    def next_change(self) -> Coroutine[None, None, object]:
        """To await: returns after the next step, load or drain since this call. Take it before reading the state."""
        return self._changed.wait()

    async def stop(self) -> None:
        """Cancels what runs; watchers end."""
        self.is_stopped = True
        self._notify()
        if self.loaded is not None:
            await self.loaded.stop()

    def _set_state(self, state: str, model: str) -> None:
        self.state = state
        self._on_state(state, model)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _build(order: LoadOrder, hardware: Hardware, progress: Progress) -> tuple[Engine, ModelRunner]:
    checkpoint = read_checkpoint(order.directory, dtype=order.dtype or None)
    runner = ModelRunner(
        checkpoint,
        num_blocks=order.num_blocks,
        block_size=order.block_size,
        device=hardware.device,
        num_threads=hardware.num_threads,
        progress=lambda done, total: progress(done / max(total, 1), f"loading {order.model}"),
    )
    config = EngineConfig(
        num_blocks=order.num_blocks,
        block_size=order.block_size,
        max_num_seqs=order.max_num_seqs,
        max_num_batched_tokens=order.max_num_batched_tokens,
        max_model_len=order.max_model_len,
        enable_prefix_cache=order.enable_prefix_cache,
        vocab_size=checkpoint.spec.vocab_size,
        eos_token_ids=checkpoint.eos_token_ids,
    )
    return Engine(config, runner=runner, clock=time.perf_counter), runner
