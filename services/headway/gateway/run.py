"""One prompt's sequences on their way: a lease, a worker, and another worker where that one dies."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TypeAlias

from headway.core.errors import ErrorCode, HeadwayError, ResourceExhaustedError, UnavailableError
from headway.core.request import SequenceOutput
from headway.gateway.client import Failure, Submit
from headway.gateway.decoding import Decoding
from headway.gateway.decodings import decodings_of
from headway.gateway.job import Delta, Job
from headway.gateway.lease import Lease, LeaseOutcome, Release, Router
from headway.gateway.link import Delivery, LinkLost, Links, WorkerLink
from headway.gateway.measure import ModelMetrics, Stopwatch
from headway.gateway.output_queue import OutputQueue
from headway.gateway.place_request import place_request
from headway.gateway.quarantine import Quarantine, Trial, generation_fingerprint
from headway.gateway.retry_deadline import RetryDeadline
from headway.gateway.route import Route
from headway.observe.failpoint import failpoint

log = logging.getLogger(__name__)

TextSink: TypeAlias = Callable[[int], Callable[[str], None]]

# From a token to its text, and from there on; and the index of the sequence.
_TokenPath: TypeAlias = tuple[Callable[[int], str], Callable[[str], None], int]

# A request that no worker has begun is better refused soon than kept waiting.
_FRESH_TIMEOUT_S = 1.0
_TOLD_AT_ONCE = 64  # outputs of a stream that is taken up
# Faults of one worker that another does not share: it ends, was given another model, or still clears up after us.
_ELSEWHERE = {ErrorCode.UNAVAILABLE, ErrorCode.NOT_FOUND, ErrorCode.ALREADY_EXISTS}


class _WorkerLostError(Exception):
    """The worker takes nothing any more; what it had of ours can go on elsewhere."""

    def __init__(self, cause: HeadwayError, *, was_running: bool, has_died: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.was_running = was_running
        self.has_died = has_died


class _WorkerLeftError(Exception):
    """The worker has handed the sequences over to another one."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"moved to {worker_id}")
        self.worker_id = worker_id


@dataclass(frozen=True, slots=True)
class _Submission:
    """Sequences that were submitted to a worker, and the queue of their outputs."""

    route: Route
    link: WorkerLink
    output_queue: OutputQueue[Delivery]


class Run:
    """Generates from one prompt of a job.

    Args:
        clock: monotonic seconds.
        sole_replicas: by model, the worker that all its requests go to at present; shared by all runs.
        resume_timeout_s: how long the run looks for another worker after its own died.
        quarantine: of requests that take workers down; shared by all runs.
        text_sink: gives for a sequence, by its index in the job, what takes the texts of its tokens that come with
            nothing else, behind the first one, as soon as they are here, without waking anybody. None: they are among
            `deltas`.
    """

    def __init__(
        self,
        job: Job,
        prompt_index: int,
        *,
        router: Router,
        links: Links,
        sole_replicas: MutableMapping[str, str],
        metrics: ModelMetrics,
        quarantine: Quarantine,
        resume_timeout_s: float,
        clock: Callable[[], float],
        text_sink: TextSink | None = None,
    ) -> None:
        self._job = job
        self._router = router
        self._links = links
        self._sole_replicas = sole_replicas
        self._metrics = metrics
        self._clock = clock
        self._timeout_s = _FRESH_TIMEOUT_S
        self._resume_timeout_s = resume_timeout_s
        self._retry = RetryDeadline(clock)
        self._watch = Stopwatch(job.arrived_s, num_sequences=job.options.num_parallel)
        self._running = decodings_of(job, prompt_index)  # by the ids that the worker knows them by
        self._left: set[WorkerLink] = set()  # links that they were withdrawn from
        self._suffixes = count(2)  # of their ids, where they come there again
        request = next(iter(self._running.values())).request
        self._trial = Trial(quarantine, model=job.model.name, fingerprint=partial(generation_fingerprint, request))
        self._wanted = place_request(job, prompt_index)
        self._placed_s = 0.0  # by the clock, when the last lease came
        self._latest_start_s = math.inf  # by the clock, for its objectives; known with the first lease
        self._journal = job.journal
        self._noted: list[SequenceOutput] = []  # for the journal
        self._loss: HeadwayError | None = None
        self._is_moving = False
        self._owes_first_token = bool(job.slo)  # the router waits to hear how late it comes
        self._next_route: Route | None = None  # of sequences that go on where the last lease said
        self._finish_reason = ""
        # A stop string, found in the text, ends a sequence with any token.
        needs_look = bool(job.options.stop) or job.options.prompt_only
        self._shortcut = None if text_sink is None or needs_look else partial(self._pass_on, text_sink)
        self._token_paths: dict[str, _TokenPath] = {}  # of those that the sink has begun to take tokens of

    async def deltas(self) -> AsyncGenerator[list[Delta], None]:
        """Yields the deltas of the sequences as they come, without what the sink takes; closing the iterator cancels
        them.

        Raises:
            HeadwayError: no worker took the sequences, or theirs failed.
        """
        async for deltas in self._past():
            yield deltas
        if not self._running:
            return
        lease: Lease | None = None
        outcome = LeaseOutcome.ERROR
        try:
            while self._running:
                await self._trial.begin()
                lease, submission = await self._settle(previous=lease)
                shortcut: Callable[[Delivery], bool] | None = None  # what a new submission begins with is for us to see
                try:
                    while self._running:
                        if deltas := self._accept(
                            await submission.output_queue.take(shortcut), submission.link, submission.output_queue
                        ):
                            self._tell_first_token(lease)
                            self._trial.note_output()
                            await self._keep()
                            yield deltas
                            shortcut = self._shortcut
                except _WorkerLostError as lost:
                    self._note_loss(lease, lost)
                except _WorkerLeftError as left:
                    self._note_move(lease, left.worker_id)
                finally:
                    self._withdraw(submission)
            outcome = LeaseOutcome.COMPLETE
            self._metrics.observe_success(
                self._watch,
                slo=self._job.slo,
                tenant=self._job.tenant,
                num_prompt_tokens=self._wanted.num_prompt_tokens,
                reason=self._finish_reason,
                now_s=self._clock(),
            )
        except HeadwayError as error:
            was_refused = lease is None and isinstance(error, ResourceExhaustedError)
            self._metrics.observe_failure(
                error.code, slo=self._job.slo, tenant=self._job.tenant, was_refused=was_refused
            )
            raise
        except (asyncio.CancelledError, GeneratorExit):
            outcome = LeaseOutcome.CANCELLED
            self._metrics.observe_departure()
            raise
        finally:
            self._trial.end()
            self._release(lease, outcome)

    async def _past(self) -> AsyncIterator[list[Delta]]:
        """The deltas of what the journal has of the sequences, which then go on as after the loss of a worker."""
        if self._journal is None or not self._journal.record.outputs:
            return
        decodings = [decoding for decoding in self._running.values() if isinstance(decoding, Decoding)]
        for number, output in enumerate(self._journal.record.outputs):
            if number % _TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn
            decoding = decodings[int(output.request_id)]
            deltas = decoding.accept(output)
            if deltas[-1].finish_reason is not None:
                del self._running[decoding.sequence_id]
            yield deltas
        self._wanted = replace(self._wanted, resumed=True)
        self._timeout_s = self._resume_timeout_s
        self._owes_first_token = False
        self._metrics.observe_resumption()

    async def _keep(self) -> None:
        """Has what was decoded in the journal before the client sees it."""
        if self._journal is not None:
            noted, self._noted = self._noted, []
            await self._journal.note(noted, has_ended=not self._running)

    async def _settle(self, *, previous: Lease | None) -> tuple[Lease, _Submission]:
        """A lease, and the sequences where it is."""
        ahead = self._submit_ahead()
        try:
            lease = await self._place(previous=previous)
        except (HeadwayError, asyncio.CancelledError):
            if ahead is not None:
                self._withdraw(ahead)
            raise
        if lease.is_sole_replica:
            self._sole_replicas[self._wanted.model] = lease.endpoint
        else:
            self._sole_replicas.pop(self._wanted.model, None)
        if ahead is not None:
            if ahead.route.endpoint == lease.endpoint:
                return lease, ahead
            self._withdraw(ahead)
        return lease, self._submit(Route(lease.endpoint, lease.decode_target, lease.source))

    async def _place(self, *, previous: Lease | None) -> Lease:
        """A lease. The router ends the one before by itself; we report on it once there is another."""
        if self._loss is not None:
            await self._retry.wait(self._loss, timeout_s=self._timeout_s)
        num_sequences = self._job.options.beam_width or len(self._running)
        request = replace(self._wanted, num_sequences=num_sequences)
        while True:
            try:
                lease = await self._router.route(request)
            except UnavailableError as error:
                if not request.resumed:
                    raise
                await self._retry.wait(error, timeout_s=self._timeout_s)
            else:
                log.debug("placed on %s: %s", lease.worker_id, lease.reason)
                self._release(previous, LeaseOutcome.MOVED)
                self._placed_s = self._clock()
                self._latest_start_s = self._placed_s + lease.slack_s
                return lease

    def _submit_ahead(self) -> _Submission | None:
        """Submits the sequences while the router still places them, where there is no choice; this saves the time of a
        message and its answer. If the router refuses them, or places them elsewhere, they are taken back. Sequences
        that go on where their lease said are submitted the same way.
        """
        route, self._next_route = self._next_route, None
        if route is None and self._loss is None and not (self._wanted.resumed or self._wanted.slo):
            endpoint = self._sole_replicas.get(self._wanted.model)
            route = Route(endpoint) if endpoint is not None and self._links.is_open(endpoint) else None
        return None if route is None else self._submit(route)

    def _submit(self, route: Route) -> _Submission:
        """Hands the sequences over; each time with an output queue of its own, so that nothing old arrives late. On a
        link that they were withdrawn from they have other ids: outputs of before may be on their way there.

        Those that have moved go one by one: each has blocks of its own at the worker. A group computes once what its
        sequences have in common, and anew what they have not.
        """
        link, output_queue = self._links.to(route.endpoint), OutputQueue[Delivery]()
        if link in self._left:
            suffix = next(self._suffixes)
            self._running = {f"{decoding.sequence_id}.{suffix}": decoding for decoding in self._running.values()}
        # One that is tried begins at once: what waits in line is blamed for what others do.
        slack_s = 0.0 if self._trial.is_on else self._latest_start_s - self._clock()
        requests = tuple(
            replace(decoding.request, request_id=sequence_id, slack_s=slack_s)
            for sequence_id, decoding in self._running.items()
        )
        for group in [(request,) for request in requests] if self._is_moving else [requests]:
            link.submit(Submit(group, self._job.traceparent, route.decode_target, route.source), output_queue)
        return _Submission(route, link, output_queue)

    def _withdraw(self, submission: _Submission) -> None:
        submission.link.cancel(self._running)
        self._left.add(submission.link)

    def _accept(
        self, deliveries: Sequence[Delivery], link: WorkerLink, output_queue: OutputQueue[Delivery]
    ) -> list[Delta]:
        """Deltas of the outputs up to the first fault, which is put back; a fault in front is raised."""
        deltas: list[Delta] = []
        for position, delivery in enumerate(deliveries):
            output = SequenceOutput(delivery[0], delivery[1:]) if isinstance(delivery, tuple) else delivery
            if not isinstance(output, SequenceOutput):
                if not deltas:
                    _raise_fault(output)
                output_queue.put_back(deliveries[position:])
                break
            deltas += self._decode(output, link)
        self._note_tokens(deltas)
        return deltas

    def _note_tokens(self, deltas: list[Delta]) -> None:
        """Tokens of one sequence that come at once have one gap before them."""
        num_tokens: Counter[int] = Counter()
        for delta in deltas:
            num_tokens[delta.index] += len(delta.token_ids)
        now_s = self._clock()
        notes = [self._watch.note(num, index=index, now_s=now_s) for index, num in num_tokens.items() if num]
        if not notes:
            return
        self._retry.renew()
        gaps_s = [gap_s for gap_s in notes if gap_s is not None]
        for gap_s in gaps_s:
            self._metrics.observe_gap(gap_s)
        if self._is_moving and gaps_s:
            self._metrics.observe_pause(max(gaps_s))
        self._is_moving = False

    def _pass_on(self, text_sink: TextSink, delivery: Delivery) -> bool:
        """Gives the sink a token that comes with nothing else, and is not the first one; False for all others."""
        if not isinstance(delivery, tuple):
            return False
        sequence_id, token_id = delivery
        token_path = self._token_paths.get(sequence_id)
        if token_path is None:
            decoding = self._running.get(sequence_id)
            if not isinstance(decoding, Decoding) or not decoding.has_begun:
                return False
            token_path = self._token_paths[sequence_id] = decoding.push, text_sink(decoding.index), decoding.index
        decode, write, index = token_path
        self._metrics.observe_gap(self._watch.note_next(self._clock(), index=index))
        write(decode(token_id))
        return True

    def _decode(self, output: SequenceOutput, link: WorkerLink) -> list[Delta]:
        decoding = self._running.get(output.request_id)
        if decoding is None:  # a stop string has ended it before this came
            return []
        deltas = decoding.accept(output)
        if self._journal is not None and isinstance(decoding, Decoding):
            self._noted.append(replace(output, request_id=str(decoding.index)))
        reason = deltas[-1].finish_reason
        if reason is not None:
            del self._running[output.request_id]
            self._finish_reason = reason
            if output.finish_reason is None:  # a stop string, of which the worker knows nothing
                link.cancel([output.request_id])
        return deltas

    def _note_loss(self, lease: Lease, lost: _WorkerLostError) -> None:
        if lost.has_died:
            self._trial.note_death()
            self._retry.renew()  # it had a worker until now, which may have stood still for long before it died
        elif lost.was_running:
            self._retry.exclude(self._clock() - self._placed_s)
        is_resumed = self._wanted.resumed or lost.was_running
        failed = (*self._wanted.excluded_worker_ids, lease.worker_id)
        self._wanted = replace(
            self._wanted, resumed=is_resumed, excluded_worker_ids=tuple(dict.fromkeys(failed)), preferred_worker_id=""
        )
        if is_resumed:
            self._timeout_s = self._resume_timeout_s
            self._metrics.observe_resumption()
        self._loss = lost.cause
        log.info("%s is lost after %d tokens: %s", lease.worker_id, self._watch.num_tokens, lost.cause)

    def _note_move(self, lease: Lease, worker_id: str) -> None:
        """Records that the sequences move to a worker that has their blocks, even if it failed the request before."""
        excluded = tuple(other for other in self._wanted.excluded_worker_ids if other != worker_id)
        self._wanted = replace(
            self._wanted, resumed=True, excluded_worker_ids=excluded, preferred_worker_id=worker_id, block_hashes=()
        )
        self._timeout_s = self._resume_timeout_s
        self._is_moving = True
        target = lease.decode_target
        if target is not None and target.worker_id == worker_id:
            self._next_route = Route(target.endpoint)
            self._metrics.observe_handoff()
        else:
            self._metrics.observe_migration()
            log.info("moved from %s to %s after %d tokens", lease.worker_id, worker_id, self._watch.num_tokens)

    def _tell_first_token(self, lease: Lease) -> None:
        """Tells the router once how long the first token of a request with objectives took."""
        if self._owes_first_token and (ttft_s := self._watch.ttft_s) is not None:
            self._owes_first_token = False
            self._router.note_first_token(lease.lease_id, ttft_s=ttft_s)

    def _release(self, lease: Lease | None, outcome: LeaseOutcome) -> None:
        if lease is None:
            return
        failpoint("gateway.answered")
        self._router.release(
            Release(
                lease_id=lease.lease_id,
                outcome=outcome,
                ttft_s=self._watch.ttft_s,
                tpot_s=self._watch.tpot_s,
                e2e_s=self._clock() - self._watch.arrived_s if outcome is LeaseOutcome.COMPLETE else None,
                num_prompt_tokens=self._wanted.num_prompt_tokens,
                num_output_tokens=self._watch.num_tokens,
                slo=self._job.slo,
            )
        )


def _raise_fault(fault: Failure | LinkLost) -> None:
    if isinstance(fault, LinkLost):
        raise _WorkerLostError(
            fault.error, was_running=fault.was_open, has_died=fault.was_open and not fault.is_leaving
        )
    if fault.moved_to:
        raise _WorkerLeftError(fault.moved_to)
    if fault.error.code in _ELSEWHERE:
        raise _WorkerLostError(fault.error, was_running=True, has_died=False)
    raise fault.error
