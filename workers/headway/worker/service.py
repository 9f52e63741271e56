"""A worker's life: starting, loading, ready, draining; and what others may ask of it meanwhile."""

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnavailableError
from headway.core.infer import InferRequest
from headway.core.kv import KvUsage, SequenceBlocks
from headway.core.load import LoadReport
from headway.core.move import MoveTarget, RequestMove
from headway.core.prefix_source import PrefixSource
from headway.core.request import GenerationRequest
from headway.core.sharding import Sharding
from headway.observe.tracing import Tracing
from headway.worker.load_call import LoadCall
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.loaded_rank import LoadedRank
from headway.worker.loading import Loaded, prepare
from headway.worker.order import LoadOrder
from headway.worker.pins import PinState, set_pins
from headway.worker.sessions import Session
from headway.worker.transfer.clearance import Clearance
from headway.worker.transfer.client import WorkerClient
from headway.worker.transfer.fetch import Fetched, fetch
from headway.worker.transfer.handoff import Handoff
from headway.worker.transfer.local import LocalBlocks
from headway.worker.transfer.move import Mover
from headway.worker.transfer.prefix import PrefixFetches
from headway.worker.usage import ids_of, sequences_of, shards_of, usage_of

log = logging.getLogger(__name__)

_QUIET_S = 5.0
_LAST_RELEASE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """What a worker's lease says: 'starting', 'loading', 'ready', 'draining' or, for a rank that does not lead, 'rank'.

    `model` is empty before it is loaded, `group_id` outside a plan's groups.
    """

    state: str
    model: str = ""
    group_id: str = ""
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What became of the sequences that did not end by themselves: cut off at the deadline, or gone on elsewhere."""

    num_cancelled: int = 0
    num_moved: int = 0


class WorkerService:
    """One worker, and the `Owner` of what it has loaded: at most one model at a time.

    Args:
        address: where other processes reach this one.
        workers: to exchange blocks with.
        on_state: called whenever it changes, to renew the lease.
        on_crashed: called when what was loaded has stopped computing; the process should end and be restarted.

    Attributes:
        has_crashed: so it is, and threads may hang: the process cannot count on an orderly end.
    """

    def __init__(
        self,
        worker_id: str,
        *,
        hardware: Hardware,
        address: str,
        workers: WorkerClient,
        on_state: Callable[[WorkerState], None],
        on_crashed: Callable[[], None],
        tracing: Tracing,
    ) -> None:
        self.worker_id = worker_id
        self.hardware = hardware
        self.state = "starting"
        self.loaded: Loaded | None = None
        self.is_stopped = False
        self.has_crashed = False
        self._address = address
        self._workers = workers
        self._on_state = on_state
        self._on_crashed = on_crashed
        self._tracing = tracing
        self._prefixes = PrefixFetches(self.fetch_blocks)
        self._loading = asyncio.Lock()
        self._changed = asyncio.Event()

    def require_loaded(self, model: str = "") -> LoadedModel | LoadedEncoder:
        """The loaded model, if it is `model` (or whichever, when empty); FailedPreconditionError where another worker
        leads the group."""
        if self.loaded is None or self.has_crashed:
            raise UnavailableError(
                f"Worker {self.worker_id} has no model loaded yet.", hint="Try again in a moment.", retry_after_s=1.0
            )
        if isinstance(self.loaded, LoadedRank):
            raise self.loaded.refusal(self.worker_id)
        if model and model != self.loaded.order.model:
            raise NotFoundError(
                f"Worker {self.worker_id} serves '{self.loaded.order.model}', not '{model}'.", field="model"
            )
        return self.loaded

    def require_generator(self, model: str = "") -> LoadedModel:
        """The same, where it generates; InvalidArgumentError where it does not."""
        loaded = self.require_loaded(model)
        if not isinstance(loaded, LoadedModel):
            raise InvalidArgumentError(f"The model '{loaded.order.model}' does not generate.", field="model")
        return loaded

    def require_encoder(self, model: str = "") -> LoadedEncoder:
        """The same, where it gives vectors; InvalidArgumentError where it generates."""
        loaded = self.require_loaded(model)
        if not isinstance(loaded, LoadedEncoder):
            raise InvalidArgumentError(f"The model '{loaded.order.model}' generates text only.", field="model")
        return loaded

    async def load(self, order: LoadOrder, *, call: LoadCall) -> None:
        """Replaces the loaded model."""
        async with self._loading:
            if self.loaded is not None:
                previous, self.loaded = self.loaded, None
                await previous.stop()
            if self.has_crashed:
                raise UnavailableError(f"Worker {self.worker_id} is ending.", hint="Try again when it is back.")
            self._set_state("loading", order)
            started_s = time.perf_counter()
            try:
                start = await asyncio.to_thread(prepare, order, self.hardware, address=self._address, call=call)
            except BaseException:
                self._set_state("starting")
                raise
            self.loaded = start(self, self._tracing)
            gc.freeze()  # as in `Host.serve`, with what the model has brought
            self._set_state("rank" if order.rank else "ready", order)
            log.info("loaded %s in %.1f s", order.model, time.perf_counter() - started_s)

    def open_session(self) -> Session:
        return Session(self.require_generator().sessions)

    def submit(
        self,
        session: Session,
        requests: Sequence[GenerationRequest],
        *,
        traceparent: str,
        decode_target: MoveTarget | None = None,
        source: PrefixSource | None = None,
    ) -> None:
        """Queues the sequences of one prompt; refused with UnavailableError while draining.

        Args:
            decode_target: where they go on once their prompt is computed.
            source: who holds more of the prompt than this worker; that is fetched first.
        """
        loaded = self.require_generator(requests[0].model)
        self._refuse_if_draining()
        before = None if source is None else self._prefixes.bring(loaded, requests[0].prompt_token_ids, source)
        session.submit(requests, traceparent=traceparent, before=before)
        if decode_target is not None:
            request_ids = [request.request_id for request in requests]
            handoff = Handoff(loaded, request_ids, target=decode_target, client=self._workers)
            loaded.sessions.spawn(handoff.run())

    async def infer(self, request: InferRequest, *, traceparent: str) -> tuple[bytes, ...]:
        """The vector of each sequence; see `InferCalls.infer`. Refused with UnavailableError while draining."""
        encoder = self.require_encoder(request.model)
        self._refuse_if_draining()
        return await encoder.sessions.infer(request, traceparent=traceparent)

    async def usage(self) -> KvUsage:
        """What the KV blocks are used for just now."""
        if not isinstance(self.loaded, LoadedModel):
            return KvUsage(worker_id=self.worker_id, model=self.loaded.order.model if self.loaded else "")
        order, worker_id = self.loaded.order, self.worker_id
        return await self.loaded.thread.call(
            lambda engine: usage_of(engine, worker_id=worker_id, model=order.model, owners=order.shard_owners)
        )

    async def sequences(self, request_id: str) -> list[SequenceBlocks]:
        """The sequences of a request and their block tables; NotFoundError where none is here."""
        found = await self.require_generator().thread.call(lambda engine: sequences_of(engine, request_id))
        if not found:
            raise NotFoundError(f"Request '{request_id}' does not run on {self.worker_id}.", field="request_id")
        return found

    async def sharding(self) -> Sharding:
        """How the cache lies on the group, and what attention over this worker's shard has taken."""
        loaded = self.loaded
        if loaded is None or isinstance(loaded, LoadedEncoder):
            return Sharding()
        work = loaded.runner.shard_work
        if isinstance(loaded, LoadedRank):
            return Sharding(work=work)
        shards = await loaded.thread.call(lambda engine: shards_of(engine, loaded.order.shard_owners))
        return Sharding(epoch=loaded.epoch, shards=shards, work=work)

    async def set_sharding(self, weights: Sequence[float], *, epoch: str) -> None:
        """Decides how the cache's shards share blocks from now on; see `Engine.set_placement`.

        Raises:
            FailedPreconditionError: `epoch` is not that of the cache.
            InvalidArgumentError: these are no weights for its shards.
        """
        loaded = self.require_generator()
        if epoch != loaded.epoch:
            raise FailedPreconditionError(
                f"The cache of {self.worker_id} has begun anew.", hint="Ask for its sharding again."
            )
        await loaded.thread.call(lambda engine: engine.set_placement(weights))

    async def set_pins(self, model: str, pins: Mapping[str, tuple[int, ...]]) -> list[PinState]:
        """Keeps exactly these prefixes of the model resident; see `headway.worker.pins`."""
        return await set_pins(self.require_generator(model), pins)

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

    def own_blocks(self, model: str) -> LocalBlocks:
        """The blocks of the model, for other workers; FailedPreconditionError where they cannot be had."""
        return LocalBlocks(self.require_generator(model))

    async def fetch_blocks(
        self, model: str, chains: Sequence[Sequence[bytes]], *, source_endpoint: str, num_sequences: int
    ) -> Fetched:
        """Brings another worker's blocks into the prefix cache; see `fetch`. Refused with UnavailableError while
        draining."""
        own = self.own_blocks(model)
        self._refuse_if_draining()
        source = self._workers.blocks_at(source_endpoint, block_bytes=own.block_bytes)
        started_s = time.monotonic()
        fetched = await fetch(chains, source=source, sink=own, num_sequences=num_sequences)
        self.require_generator(model).fetch_rate.observe(fetched.num_bytes, seconds=time.monotonic() - started_s)
        return fetched

    async def move(self, request_id: str, *, target: MoveTarget) -> RequestMove:
        """Has a request's sequences go on at another worker; see `Mover.move`."""
        if target.worker_id == self.worker_id:
            raise InvalidArgumentError(f"The request runs on {self.worker_id} already.", field="target")
        loaded = self.require_generator()
        request_ids = await loaded.thread.call(lambda engine: ids_of(engine, request_id))
        if not request_ids:
            raise NotFoundError(f"Request '{request_id}' does not run on {self.worker_id}.", field="request_id")
        return await self._mover(loaded).move(request_ids, target=target)

    async def drain(self, *, deadline_s: float, targets: Sequence[MoveTarget] = ()) -> Drained:
        """Takes no more sequences; waits until those that run have moved to the targets, or have ended."""
        loaded = self.loaded
        if loaded is None or isinstance(loaded, LoadedRank):
            return Drained()
        self._set_state("draining", loaded.order)
        clearance = None
        if targets and isinstance(loaded, LoadedModel):
            clearance = Clearance(loaded, self._mover(loaded), targets=targets)
        num_cancelled = 0
        try:
            await asyncio.wait_for(clearance.run() if clearance else loaded.sessions.wait_until_idle(), deadline_s)
        except TimeoutError:
            num_cancelled = loaded.sessions.cancel_all()
        return Drained(num_cancelled=num_cancelled, num_moved=clearance.num_moved if clearance else 0)

    def report(self) -> LoadReport:
        if self.loaded is None:
            return LoadReport(state=self.state)
        if isinstance(self.loaded, LoadedRank):
            return LoadReport(model=self.loaded.order.model, state=self.state)
        if isinstance(self.loaded, LoadedEncoder):
            return self.loaded.report(self.state)
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
            fetch_bytes_per_s=self.loaded.fetch_rate.bytes_per_s,
        )

    def next_change(self) -> Coroutine[None, None, object]:
        """To await: returns after the next step, load or drain since this call. Take it before reading the state."""
        return self._changed.wait()

    async def stop(self) -> None:
        """Cancels what runs; watchers end."""
        self.is_stopped = True
        self.on_change()
        if isinstance(self.loaded, LoadedRank):
            await self.loaded.stop(grace_s=_LAST_RELEASE_S)
        elif self.loaded is not None:
            await self.loaded.stop()

    def on_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def on_crash(self) -> None:
        self.has_crashed = True
        if not self.is_stopped:
            self._set_state("starting")
        self._on_crashed()

    def on_release(self) -> None:
        if self.loaded is not None:  # else another load has been waiting for it
            self.loaded = None
            self._set_state("starting")

    def _mover(self, loaded: LoadedModel) -> Mover:
        return Mover(self.worker_id, loaded, client=self._workers)

    def _refuse_if_draining(self) -> None:
        if self.state == "draining":
            raise UnavailableError(f"Worker {self.worker_id} is draining.", hint="Another worker takes the request.")

    def _set_state(self, state: str, order: LoadOrder | None = None) -> None:
        """`order` is what is loaded, or being loaded; None for nothing."""
        self.state = state
        if order is None:
            self._on_state(WorkerState(state=state))
        else:
            model = "" if state == "loading" else order.model
            self._on_state(WorkerState(state=state, model=model, group_id=order.group_id, rank=order.rank))
        self.on_change()
