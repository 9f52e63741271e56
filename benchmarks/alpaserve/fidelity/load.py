"""Sends a workload to a live stack at its times, whatever the answers do: an open loop."""

import asyncio
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.client import AsyncClient
from headway.client.infer import InferOptions
from headway.core.errors import DeadlineExceededError, ResourceExhaustedError
from headway.planner.placement.workload import Workload

TIMEOUT_S = 120.0
TEXT = "the headway between two trains"
LEAD_S = 0.1
"""Until the first request is due: the tasks are made before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observed:
    """The latencies of requests as the client saw them.

    Attributes:
        latency_s: float64 [num_requests], from when a request was due to leave until its answer was there; infinite
            where it was refused.
        slo_s: float64 [num_requests].
        lag_s: of the request that left latest after it was due.
    """

    latency_s: NDArray[np.float64]
    slo_s: NDArray[np.float64]
    lag_s: float

    @property
    def attainment(self) -> float:
        """Share of requests that were answered in time."""
        return float(np.mean(self.latency_s <= self.slo_s))

    @property
    def num_refused(self) -> int:
        return int(np.isinf(self.latency_s).sum())

    @property
    def mean_latency_s(self) -> float:
        """Mean latency of the requests that were answered; NaN where none was."""
        answered = self.latency_s[np.isfinite(self.latency_s)]
        return float(answered.mean()) if len(answered) else float("nan")


async def send(workload: Workload, *, endpoint: str, text: str = TEXT) -> Observed:
    """Sends each request with its objective and the same text; returns when all are answered or refused.

    Args:
        endpoint: of the gateway's gRPC service.

    Raises:
        HeadwayError: a request failed otherwise.
    """
    async with AsyncClient(endpoint, timeout_s=TIMEOUT_S) as client:
        for model in workload.models:
            await client.embed(text, model=model, slo_ms=1000 * TIMEOUT_S)  # connects whatever is connected on demand
        start_s = time.perf_counter() + LEAD_S
        seen = await asyncio.gather(
            *(
                ask(client, text, workload.models[model], due_s=start_s + arrival_s, slo_s=slo_s)
                for arrival_s, model, slo_s in zip(
                    workload.arrival_s.tolist(), workload.model.tolist(), workload.slo_s.tolist(), strict=True
                )
            )
        )
    return Observed(
        latency_s=np.array([latency_s for latency_s, _ in seen]),
        slo_s=workload.slo_s,
        lag_s=max(lag_s for _, lag_s in seen),
    )


async def ask(client: AsyncClient, text: str, model: str, *, due_s: float, slo_s: float) -> tuple[float, float]:
    """Sends one request; returns its latency and lag in seconds."""
    objective = InferOptions(slo_ms=1000 * slo_s) if np.isfinite(slo_s) else InferOptions()
    await asyncio.sleep(due_s - time.perf_counter())
    lag_s = time.perf_counter() - due_s
    try:
        await client.embed(text, model=model, **objective)
    except (ResourceExhaustedError, DeadlineExceededError):
        return float("inf"), lag_s
    return time.perf_counter() - due_s, lag_s
