"""Jobs for encoders: what happens to leases when workers refuse, die, or their client leaves."""

import asyncio
import time
from collections import deque
from typing import Any

import numpy as np
import pytest

from headway.core.errors import InternalError, NotFoundError, ResourceExhaustedError, UnavailableError
from headway.core.infer import InferRequest, InferSequence
from headway.core.slo import Slo
from headway.gateway.errors import WorkerUnreachableError
from headway.gateway.infer.job import InferJob
from headway.gateway.infer.run import Inferrer
from headway.gateway.infer.shorten import shorten
from headway.gateway.lease import Lease, LeaseOutcome, PlaceRequest, Release
from headway.gateway.quarantine import Quarantine


class Router:
    """Gives places on worker 0, 1, 2 ... that are not excluded."""

    def __init__(self) -> None:
        self.routed: list[PlaceRequest] = []
        self.released: list[Release] = []
        self.fault: Exception | None = None

    async def route(self, request: PlaceRequest) -> Lease:
        self.routed.append(request)
        if self.fault is not None:
            raise self.fault
        number = len(request.excluded_worker_ids)
        return Lease(lease_id=f"lease-{number}", worker_id=f"worker-{number}", endpoint=f"host:{number}", reason="")

    def note_first_token(self, lease_id: str, *, ttft_s: float) -> None:
        raise AssertionError("a model that does not generate has no first token")

    def release(self, release: Release) -> None:
        self.released.append(release)


class Workers:
    """Raises the faults one after the other, then answers; the vector of a sequence is its first token."""

    def __init__(self, *faults: Exception, delay_s: float = 0.0) -> None:
        self.endpoints: list[str] = []
        self.requests: list[InferRequest] = []
        self._faults = deque(faults)
        self._delay_s = delay_s

    async def infer(self, endpoint: str, request: InferRequest, *, traceparent: str = "") -> list[Any]:
        self.endpoints.append(endpoint)
        self.requests.append(request)
        await asyncio.sleep(self._delay_s)
        if self._faults:
            raise self._faults.popleft()
        return [np.array([sequence.token_ids[0]], np.float32) for sequence in request.sequences]


class Model:
    name = "bert"


def inferrer_of(router: Router, workers: Workers, *, resume_timeout_s: float = 1.0, **settings: float) -> Inferrer:
    quarantine = Quarantine(time.monotonic)
    return Inferrer(
        router=router, workers=workers, quarantine=quarantine, resume_timeout_s=resume_timeout_s, **settings
    )


def job(*, slo: Slo | None = None) -> InferJob:
    return InferJob(
        request_id="r",
        model=Model(),  # type: ignore[arg-type]
        sequences=(InferSequence(token_ids=(3, 4)), InferSequence(token_ids=(5,))),
        slo=slo or Slo(),
        arrived_s=time.monotonic(),
    )


async def test_an_answer_releases_its_lease_with_its_time() -> None:
    router = Router()
    inferrer = inferrer_of(router, Workers())
    answer = await inferrer.infer(job())
    assert answer.vectors.tolist() == [[3.0], [5.0]]
    assert (router.routed[0].num_prompt_tokens, router.routed[0].max_output_tokens) == (3, 0)
    (release,) = router.released
    assert release.outcome is LeaseOutcome.COMPLETE
    assert release.ttft_s is not None
    assert release.tpot_s is None


async def test_a_worker_has_as_much_less_time_as_the_answer_takes_besides() -> None:
    workers = Workers()
    inferrer = inferrer_of(Router(), workers, answer_overhead_s=40.0)
    await inferrer.infer(job(slo=Slo(ttft_s=60.0)))
    await inferrer.infer(job())
    bounded, unbounded = (request.slo_s for request in workers.requests)
    assert bounded is not None
    assert 0 < bounded <= 20.0
    assert unbounded is None


async def test_a_lost_worker_is_replaced_by_another() -> None:
    router, workers = Router(), Workers(UnavailableError("gone"), UnavailableError("gone too"))
    inferrer = inferrer_of(router, workers)
    assert (await inferrer.infer(job())).num_tokens == 3
    assert workers.endpoints == ["host:0", "host:1", "host:2"]
    assert [request.resumed for request in router.routed] == [False, True, True]
    assert router.routed[-1].excluded_worker_ids == ("worker-0", "worker-1")
    assert [release.outcome for release in router.released] == [
        LeaseOutcome.MOVED,
        LeaseOutcome.MOVED,
        LeaseOutcome.COMPLETE,
    ]


async def test_retries_with_lost_workers_end() -> None:
    faults = [UnavailableError(f"gone {i}") for i in range(100)]
    inferrer = inferrer_of(Router(), Workers(*faults), resume_timeout_s=0.2)
    with pytest.raises(UnavailableError):
        await inferrer.infer(job())


async def test_the_time_in_the_line_of_a_worker_is_no_time_without_one() -> None:
    """It waits there for longer than for another worker, and then the worker is given another model."""
    given_another = NotFoundError("serves another model")
    workers = Workers(given_another, given_another, given_another, delay_s=0.3)
    assert (await inferrer_of(Router(), workers, resume_timeout_s=0.2).infer(job())).num_tokens == 3
    assert workers.endpoints == ["host:0", "host:1", "host:2", "host:3"]


async def test_the_time_for_which_no_connection_is_made_is_time_without_a_worker() -> None:
    unreachable = [WorkerUnreachableError("no connection") for _ in range(3)]
    inferrer = inferrer_of(Router(), Workers(*unreachable, delay_s=0.3), resume_timeout_s=0.2)
    with pytest.raises(WorkerUnreachableError):
        await inferrer.infer(job())


async def test_a_fault_that_every_worker_shares_is_raised_at_once() -> None:
    router = Router()
    inferrer = inferrer_of(router, Workers(InternalError("broken")))
    with pytest.raises(InternalError):
        await inferrer.infer(job())
    assert [release.outcome for release in router.released] == [LeaseOutcome.ERROR]


async def test_a_refusal_holds_no_lease() -> None:
    router = Router()
    router.fault = ResourceExhaustedError("too slow", retry_after_s=1)
    inferrer = inferrer_of(router, Workers())
    with pytest.raises(ResourceExhaustedError):
        await inferrer.infer(job(slo=Slo(ttft_s=0.001)))
    assert router.released == []


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    router = Router()
    inferrer = inferrer_of(router, Workers(delay_s=10))
    task = asyncio.create_task(inferrer.infer(job()))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [release.outcome for release in router.released] == [LeaseOutcome.CANCELLED]


def test_a_shortened_vector_has_length_one_and_zeros_stay() -> None:
    vectors = np.array([[3.0, 4.0, 12.0], [0.0, 0.0, 1.0]], np.float32)
    assert shorten(vectors, None) is vectors
    np.testing.assert_allclose(shorten(vectors, 2), [[0.6, 0.8], [0.0, 0.0]], atol=1e-7)
