"""One job on its way: a lease, a worker, and another worker where that one dies. Nothing is lost: it starts anew."""

import asyncio
import time
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import ErrorCode, HeadwayError, ResourceExhaustedError
from headway.core.infer import InferRequest
from headway.gateway.errors import WorkerDiedError, WorkerUnreachableError
from headway.gateway.infer.job import InferAnswer, InferJob
from headway.gateway.lease import Lease, LeaseOutcome, PlaceRequest, Release, Router
from headway.gateway.measure import ModelMetrics, Stopwatch
from headway.gateway.quarantine import Quarantine, Trial, infer_fingerprint
from headway.gateway.retry_deadline import RetryDeadline

# Faults of one worker that another does not share: it ends, was given another model, or still clears up after us.
_ELSEWHERE = {ErrorCode.UNAVAILABLE, ErrorCode.NOT_FOUND, ErrorCode.ALREADY_EXISTS}


class Workers(Protocol):
    """The workers that compute infer jobs."""

    async def infer(self, endpoint: str, request: InferRequest, *, traceparent: str = "") -> list[NDArray[np.float32]]:
        """The vector of each sequence.

        Raises:
            WorkerDiedError: the worker was lost while it had the request.
            WorkerUnreachableError: it was sent nothing.
            HeadwayError: it refuses or fails.
        """


class Inferrer:
    """Runs jobs on the workers.

    Args:
        quarantine: of requests that take workers down.
        resume_timeout_s: how long a job whose worker died waits for another.
        answer_overhead_s: of a request's bound, what is not the worker's to use.
    """

    def __init__(
        self,
        *,
        router: Router,
        workers: Workers,
        quarantine: Quarantine,
        resume_timeout_s: float,
        answer_overhead_s: float = 0.0,
    ) -> None:
        self._router = router
        self._workers = workers
        self._quarantine = quarantine
        self._resume_timeout_s = resume_timeout_s
        self._answer_overhead_s = answer_overhead_s
        self._metrics: dict[str, ModelMetrics] = {}

    async def infer(self, job: InferJob) -> InferAnswer:
        """The whole answer; cancelling the task takes the job back.

        Raises:
            HeadwayError: no worker took the job, or theirs failed, or it takes workers down.
        """
        metrics = self._metrics.setdefault(job.model.name, ModelMetrics(job.model.name))
        watch = Stopwatch(job.arrived_s, num_sequences=1)
        trial = Trial(self._quarantine, model=job.model.name, fingerprint=partial(infer_fingerprint, job))
        try:
            answer = await self._run(job, watch, trial)
        except HeadwayError as error:
            was_refused = isinstance(error, ResourceExhaustedError)
            metrics.observe_failure(error.code, slo=job.slo, tenant=job.tenant, was_refused=was_refused)
            raise
        except asyncio.CancelledError:
            metrics.observe_departure()
            raise
        finally:
            trial.end()
        metrics.observe_success(
            watch,
            slo=job.slo,
            tenant=job.tenant,
            num_prompt_tokens=job.num_tokens,
            reason="complete",
            now_s=time.monotonic(),
        )
        return answer

    async def _run(self, job: InferJob, watch: Stopwatch, trial: Trial) -> InferAnswer:
        """Asks for places until a worker answers, or the retry deadline passes, to which the time at workers does not
        count: a job waits for its turn there, and a worker is given another model meanwhile."""
        retry = RetryDeadline(time.monotonic)
        excluded: tuple[str, ...] = ()
        while True:
            await trial.begin()
            lease = await self._router.route(_place_request(job, excluded))
            outcome = LeaseOutcome.ERROR
            sent_s = time.monotonic()
            try:
                request = job.request(now_s=sent_s, answer_overhead_s=self._answer_overhead_s)
                vectors = await self._workers.infer(lease.endpoint, request, traceparent=job.traceparent)
                watch.note(0, now_s=time.monotonic())
                trial.note_output()
                outcome = LeaseOutcome.COMPLETE
            except asyncio.CancelledError:
                outcome = LeaseOutcome.CANCELLED
                raise
            except HeadwayError as error:
                if error.code not in _ELSEWHERE:
                    raise
                if isinstance(error, WorkerDiedError):
                    trial.note_death()
                    retry.renew()
                outcome = LeaseOutcome.MOVED
                fault = error
            else:
                return InferAnswer(vectors=np.stack(vectors), num_tokens=job.num_tokens)
            finally:
                self._release(lease, job, watch, outcome)
            excluded = tuple(dict.fromkeys((*excluded, lease.worker_id)))
            if not isinstance(fault, WorkerUnreachableError):
                retry.exclude(time.monotonic() - sent_s)
            await retry.wait(fault, timeout_s=self._resume_timeout_s)

    def _release(self, lease: Lease, job: InferJob, watch: Stopwatch, outcome: LeaseOutcome) -> None:
        self._router.release(
            Release(
                lease_id=lease.lease_id,
                outcome=outcome,
                ttft_s=watch.ttft_s,
                e2e_s=watch.ttft_s,
                num_prompt_tokens=job.num_tokens,
                slo=job.slo,
            )
        )


def _place_request(job: InferJob, excluded: tuple[str, ...]) -> PlaceRequest:
    """Returns the request for a place. All sequences count as one prompt: they are computed one after the other, and
    nothing is decoded.
    """
    return PlaceRequest(
        request_id=job.request_id,
        model=job.model.name,
        num_prompt_tokens=job.num_tokens,
        max_output_tokens=0,
        num_sequences=1,
        slo=job.slo,
        arrived_s=job.arrived_s,
        priority=job.priority,
        excluded_worker_ids=excluded,
        resumed=bool(excluded),
        tenant=job.tenant,
        tenant_weight=job.tenant_weight,
        traceparent=job.traceparent,
    )
