"""A worker's life: starting, loading, ready, draining; and what others may ask of it meanwhile."""

import asyncio
import logging
import math
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from headway.core.cluster import Hardware
from headway.core.engine_kind import Feature, check_request
from headway.core.errors import (
    FailedPreconditionError,
    HeadwayError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from headway.core.infer import InferRequest
from headway.core.line import QueuePolicy
from headway.core.load import LoadReport
from headway.core.load_order import LoadOrder
from headway.core.move import MoveTarget, RequestMove
from headway.core.prefix_source import PrefixSource
from headway.core.request import GenerationRequest
from headway.encoder.group_line import GroupLine
from headway.observe.failpoint import failpoint
from headway.observe.tracing import Tracing
from headway.worker.caches import Caches
from headway.worker.heap import Heap
from headway.worker.limits import check_step
from headway.worker.load_call import LoadCall
from headway.worker.loaded import Start
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.loaded_rank import LoadedRank
from headway.worker.loading import Loader, loader_of
from headway.worker.measuring import Measuring
from headway.worker.pins import PinState, set_pins
from headway.worker.preparation import Preparation
from headway.worker.replicas import LoadedReplica, Replicas
from headway.worker.sessions import Session, going_away
from headway.worker.state import WorkerState, state_of
from headway.worker.transfer.client import PeerWorkerClient
from headway.worker.transfer.drain import Drain
from headway.worker.transfer.fetch import Fetched, fetch
from headway.worker.transfer.handoff import Handoff
from headway.worker.transfer.local import LocalBlocks
from headway.worker.transfer.migrator import Migrator

log = logging.getLogger(__name__)

_QUIET_S = 5.0
_LAST_RELEASE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The sequences that did not end by themselves during a drain: cut off at the deadline, or migrated."""

    num_cancelled: int = 0
    num_moved: int = 0


class WorkerService:
    """One worker, and the `Owner` of what it has loaded. Its models take turns on its device.

    Args:
        address: where other processes reach this one.
        workers: to exchange blocks with.
        on_state: called whenever it changes, to renew the lease.
        on_crashed: called when what was loaded has stopped computing; the process should end and be restarted.

    Attributes:
        measuring: times programs while there are no requests.
        replicas: of the models that it has loaded.
        caches: theirs.
        has_crashed: so it is, and threads may hang: the process cannot count on an orderly end.
    """

    def __init__(
        self,
        worker_id: str,
        *,
        hardware: Hardware,
        address: str,
        workers: PeerWorkerClient,
        on_state: Callable[[WorkerState], None],
        on_crashed: Callable[[], None],
        tracing: Tracing,
        queue_policy: QueuePolicy = QueuePolicy.FCFS,
        has_graphs: bool = True,
        overlaps_steps: bool = True,
        engine_events: str = "",
    ) -> None:
        self.worker_id = worker_id
        self.hardware = hardware
        self.replicas = Replicas(worker_id)
        self.line = GroupLine()
        self.queue_policy = queue_policy
        self.is_stopped = False
        self.has_crashed = False
        self._address = address
        self._loader: Loader | None = None
        self._has_graphs = has_graphs
        self._overlaps_steps = overlaps_steps
        self._engine_events = engine_events
        self._heap = Heap()
        self._workers = workers
        self._on_state = on_state
        self._on_crashed = on_crashed
        self._tracing = tracing
        self._preparation = Preparation(self.fetch_blocks)
        self.measuring = Measuring(hardware, idle_s=self._idle_s, quiet_s=_QUIET_S, host=address)
        self.caches = Caches(worker_id, self.replicas, check_alive=self._check_alive)
        self._sessions: set[Session] = set()
        self._loading = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def state(self) -> str:
        """The worker's state; see `WorkerState`."""
        return self._describe().state

    def require_loaded(self, model: str = "") -> LoadedModel | LoadedEncoder:
        """A loaded model, the only one for ''; see `Replicas.require`."""
        self._check_alive()
        loaded = self.replicas.require(model).loaded
        assert not isinstance(loaded, LoadedRank), "that is refused"
        return loaded

    def require_generator(self, model: str = "") -> LoadedModel:
        """The same, where it generates; InvalidArgumentError where it does not."""
        self._check_alive()
        return self.replicas.generator(model)

    def require_encoder(self, model: str = "") -> LoadedEncoder:
        """The same, where it gives vectors; InvalidArgumentError where it generates."""
        self._check_alive()
        return self.replicas.encoder(model)

    async def load(self, order: LoadOrder, *, call: LoadCall) -> None:
        """Loads a model beside the others, or in place of one of its name."""
        try:
            async with self._loading:
                await self._load(order, call)
        finally:
            self._tell_state()

    async def unload(self, model: str) -> None:
        """Ends a model, and frees its memory; NotFoundError where it is not loaded."""
        async with self._loading:
            if self.replicas.get(model) is None:
                raise NotFoundError(f"Worker {self.worker_id} has not loaded '{model}'.", field="model")
            await self._remove(model)
        self._tell_state()
        log.info("unloaded %s", model)

    def open_session(self) -> Session:
        """A stream; FailedPreconditionError where another worker leads the group."""
        self._check_alive()
        self.replicas.check_leads()
        session = Session()
        self._sessions.add(session)
        return session

    def close_session(self, session: Session) -> None:
        """Closes a session whose caller has gone."""
        self._sessions.discard(session)
        session.close()

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
        self._refuse_if_draining(loaded.order.model)
        for request in requests:
            check_request(request, loaded.engine.facts.kind)
        if Feature.BLOCK_TRANSFER not in loaded.engine.facts.features:
            source = None  # its blocks are computed here instead
        handoff = None
        if decode_target is not None:
            request_ids = [request.request_id for request in requests]
            handoff = Handoff(loaded, request_ids, target=decode_target, client=self._workers)
        before = self._preparation.of(requests[0], loaded=loaded, source=source)
        session.submit(requests, to=loaded.sessions, traceparent=traceparent, before=before)
        if handoff is not None:
            loaded.sessions.spawn(handoff.run())

    async def infer(self, request: InferRequest, *, traceparent: str) -> tuple[bytes, ...]:
        """The vector of each sequence; see `InferCalls.infer`. Refused with UnavailableError while draining."""
        encoder = self.require_encoder(request.model)
        self._refuse_if_draining(encoder.order.model)
        return await encoder.sessions.infer(request, traceparent=traceparent)

    async def set_pins(self, model: str, pins: Mapping[str, tuple[int, ...]]) -> list[PinState]:
        """Keeps exactly these prefixes of the model resident; see `headway.worker.pins`."""
        return await set_pins(self.require_generator(model), pins)

    async def measure_step(
        self, *, prefill_tokens: int, num_decodes: int, context_tokens: int, model: str = ""
    ) -> float:
        """Seconds of one synthetic step; FailedPreconditionError while requests of any model run, or did a moment ago.

        A request that arrives meanwhile waits for the step, so steps are measured only where none is likely.
        """
        loaded = self.require_loaded(model)
        check_step(loaded.order, prefill_tokens=prefill_tokens, num_decodes=num_decodes, context_tokens=context_tokens)
        if self.replicas.idle_s() < _QUIET_S:
            raise FailedPreconditionError(
                f"The worker served requests within the last {_QUIET_S:.0f} s.", hint="Try again when it is idle."
            )
        return await loaded.measure(
            prefill_tokens=prefill_tokens, num_decodes=num_decodes, context_tokens=context_tokens
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
        self._refuse_if_draining(own.layout.model)
        source = self._workers.blocks_at(source_endpoint, block_bytes=own.block_bytes)
        started_s = time.monotonic()
        fetched = await fetch(chains, source=source, sink=own, num_sequences=num_sequences)
        self.require_generator(model).fetch_rate.observe(fetched.num_bytes, seconds=time.monotonic() - started_s)
        return fetched

    async def move(self, request_id: str, *, target: MoveTarget) -> RequestMove:
        """Has a request's sequences go on at another worker; see `Migrator.move`."""
        if target.worker_id == self.worker_id:
            raise InvalidArgumentError(f"The request runs on {self.worker_id} already.", field="target")
        self._check_alive()
        loaded, request_ids = self.replicas.running(request_id)
        return await self._mover(loaded).move(request_ids, target=target)

    async def drain(self, *, deadline_s: float, targets: Sequence[MoveTarget] = (), model: str = "") -> Drained:
        """Takes no more sequences of a model, or of any; waits until those that run have moved to the targets, or have
        ended. InvalidArgumentError where the deadline is no time."""
        if not 0 <= deadline_s < math.inf:
            raise InvalidArgumentError(
                f"deadline_s is {deadline_s}, it must be finite and not negative.", field="deadline_s"
            )
        leaving = [replica for replica in self.replicas if model in ("", replica.model) and replica.state != "rank"]
        for replica in leaving:
            replica.state = "draining"
        self._tell_state()
        drained = await asyncio.gather(*(self._empty(replica, deadline_s, targets) for replica in leaving))
        return Drained(
            num_cancelled=sum(each.num_cancelled for each in drained), num_moved=sum(each.num_moved for each in drained)
        )

    def report(self) -> list[LoadReport]:
        """One for each model; one that tells the state where there is none."""
        return [replica.report() for replica in self.replicas] or [LoadReport(state=self.state)]

    def next_change(self) -> Coroutine[None, None, object]:
        """Returns an awaitable that ends after the next step, load or drain. Take it before you read the state."""
        return self._changed.wait()

    async def stop(self) -> None:
        """Cancels what runs; watchers and streams end. What comes on a stream at that moment nobody computes, and its
        caller is told so: an end without a word is one of a worker that crashed."""
        self.is_stopped = True
        self.on_change()
        for replica in self.replicas:
            if isinstance(replica.loaded, LoadedRank):
                await replica.loaded.stop(grace_s=_LAST_RELEASE_S)
            else:
                await replica.loaded.stop()
        self._end_streams(going_away())

    def on_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def on_crash(self) -> None:
        self.has_crashed = True
        self._end_streams()
        if not self.is_stopped:
            self._tell_state()
        self._on_crashed()

    def on_release(self, model: str) -> None:
        if (replica := self.replicas.remove(model)) is not None:  # else another load has been waiting for it
            self._heap.free(weakref.ref(replica.loaded.holder))
            self._tell_state()

    async def _load(self, order: LoadOrder, call: LoadCall) -> None:
        await self._remove(order.model)
        self._check_alive()
        if not all(order.shares_group_of(replica.loaded.order) for replica in self.replicas):
            raise FailedPreconditionError(
                f"{self.worker_id} has {self.replicas.names} loaded, on another group of workers than '{order.model}'.",
                hint="Unload that first, or place the models on the same workers, in the same order and layout.",
            )
        self._tell_state()
        started_s = time.perf_counter()
        start = await asyncio.to_thread(self._prepare, order, call)
        self.replicas.add(LoadedReplica(start(self, self._tracing), "rank" if order.rank else "ready"))
        self._heap.keep()
        failpoint("worker.loaded")
        log.info("loaded %s in %.1f s", order.model, time.perf_counter() - started_s)

    def _prepare(self, order: LoadOrder, call: LoadCall) -> Start:
        self._loader = self._loader or loader_of(
            self.hardware,
            address=self._address,
            has_graphs=self._has_graphs,
            overlaps_steps=self._overlaps_steps,
            queue_policy=self.queue_policy,
            engine_events=self._engine_events,
        )
        return self._loader.prepare(order, call=call)

    async def _remove(self, model: str) -> None:
        """Stops a model, if it is loaded; its memory is free afterwards."""
        replica = self.replicas.remove(model)
        if replica is None:
            return
        self.on_change()
        await replica.loaded.stop()
        runner = weakref.ref(replica.loaded.holder)
        del replica
        self._heap.free(runner)

    async def _empty(self, replica: LoadedReplica, deadline_s: float, targets: Sequence[MoveTarget]) -> Drained:
        loaded = replica.loaded
        assert not isinstance(loaded, LoadedRank), "its leader is emptied"
        drain = None
        if targets and isinstance(loaded, LoadedModel) and Feature.BLOCK_TRANSFER in loaded.engine.facts.features:
            drain = Drain(loaded, self._mover(loaded), targets=targets)
        num_cancelled = 0
        try:
            await asyncio.wait_for(drain.run() if drain else loaded.sessions.wait_until_idle(), deadline_s)
        except TimeoutError:
            num_cancelled = loaded.sessions.cancel_all()
        return Drained(num_cancelled=num_cancelled, num_moved=drain.num_moved if drain else 0)

    def _idle_s(self) -> float | None:
        """Seconds since the last request, or at a rank that does not lead, since its group's last step; None where
        nothing is loaded."""
        if self._loading.locked():
            return 0.0
        return min((replica.idle_s for replica in self.replicas), default=None)

    def _mover(self, loaded: LoadedModel) -> Migrator:
        return Migrator(self.worker_id, loaded, client=self._workers)

    def _end_streams(self, error: HeadwayError | None = None) -> None:
        for session in tuple(self._sessions):
            session.end(error)

    def _check_alive(self) -> None:
        if self.has_crashed:
            raise UnavailableError(
                f"Worker {self.worker_id} is ending.", hint="Try again when it is back.", retry_after_s=1.0
            )

    def _refuse_if_draining(self, model: str) -> None:
        if self.replicas.require(model).state == "draining":
            raise UnavailableError(
                f"Worker {self.worker_id} is draining '{model}'.", hint="Another worker takes the request."
            )

    def _tell_state(self) -> None:
        self._on_state(self._describe())
        self.on_change()

    def _describe(self) -> WorkerState:
        if self.has_crashed:
            return WorkerState(state="starting")
        return state_of(self.replicas, is_loading=self._loading.locked())
