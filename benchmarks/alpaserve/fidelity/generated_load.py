"""Sends requests for language models, and for others beside them, to a live stack at their times, each with its own
prompt and length of output."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.alpaserve.fidelity.load import LEAD_S, TEXT, TIMEOUT_S, Observed, ask
from headway.client import AsyncClient
from headway.client.prompt import GenerateOptions
from headway.core.errors import DeadlineExceededError, ResourceExhaustedError
from headway.core.slo import Slo
from headway.planner.placement.workload import Workload

_SEED = 23
_TOKENS = (100, 1000)
"""Of random prompts: from and below; every vocabulary has them, and no two prompts begin alike."""
_REFUSED = (float("inf"), float("inf"), float("nan"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObservedTokens(Observed):
    """Times of requests as the client saw them, by token.

    Attributes:
        ttft_s, tpot_s: float64 [num_requests]; TTFT is infinite where a request was refused, TPOT NaN there and of a
            single token.
        is_met: bool [num_requests], whether it kept all its bounds.
    """

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    is_met: NDArray[np.bool_]

    @property
    def attainment(self) -> float:
        """Share of requests that kept all their bounds."""
        return float(np.mean(self.is_met))


async def send_generated(workload: Workload, slos: Mapping[str, Slo], *, endpoint: str) -> ObservedTokens:
    """Sends all requests and returns when all are answered or refused.

    Args:
        slos: of first tokens and of the time between tokens, by model.
        endpoint: of the gateway's gRPC service.

    Raises:
        HeadwayError: a request failed otherwise.
    """
    assert workload.lengths is not None
    rng = np.random.default_rng(_SEED)
    async with AsyncClient(endpoint, timeout_s=TIMEOUT_S) as client:
        for number, model in enumerate(workload.models):  # connects what is connected late
            generates = bool(workload.lengths.output[workload.model == number].any())
            await _ask(client, [1, 2, 3], model, 2 if generates else 0, Slo(), due_s=time.perf_counter())
        start_s = time.perf_counter() + LEAD_S
        seen = await asyncio.gather(
            *(
                _ask(
                    client,
                    rng.integers(*_TOKENS, num_prompt).tolist(),
                    workload.models[model],
                    num_output,
                    Slo(e2e_s=slo_s if slo_s < np.inf else None).over(slos[workload.models[model]]),
                    due_s=start_s + arrival_s,
                )
                for arrival_s, model, slo_s, num_prompt, num_output in zip(
                    workload.arrival_s.tolist(),
                    workload.model.tolist(),
                    workload.slo_s.tolist(),
                    workload.lengths.prompt.tolist(),
                    workload.lengths.output.tolist(),
                    strict=True,
                )
            )
        )
    ttft_s, latency_s, tpot_s, lag_s, is_met = (np.array(column) for column in zip(*seen, strict=True))
    return ObservedTokens(
        latency_s=latency_s,
        slo_s=workload.slo_s,
        lag_s=float(lag_s.max()),
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        is_met=is_met.astype(np.bool_),
    )


async def _ask(
    client: AsyncClient, prompt: list[int], model: str, num_output: int, slo: Slo, *, due_s: float
) -> tuple[float, float, float, float, bool]:
    """Sends one request; returns TTFT, latency, TPOT and lag, and whether it kept its bounds; without output it is one
    pass."""
    if num_output == 0:
        slo_s = np.inf if slo.e2e_s is None else slo.e2e_s
        latency_s, lag_s = await ask(client, TEXT, model, due_s=due_s, slo_s=slo_s)
        return latency_s, latency_s, np.nan, lag_s, latency_s <= slo_s
    options = GenerateOptions(max_tokens=num_output, ignore_eos=True, temperature=0.0)
    if slo.ttft_s is not None:
        options["slo_ttft_s"] = slo.ttft_s
    if slo.tpot_s is not None:
        options["slo_tpot_s"] = slo.tpot_s
    if slo.e2e_s is not None:
        options["slo_ms"] = 1000 * slo.e2e_s
    await asyncio.sleep(due_s - time.perf_counter())
    lag_s = time.perf_counter() - due_s
    times_s = []
    num_tokens = 0
    try:
        async for chunk in client.generate(prompt, model=model, **options):
            if chunk.token_ids:
                times_s.append(time.perf_counter())
                num_tokens += len(chunk.token_ids)
    except (ResourceExhaustedError, DeadlineExceededError):
        return (*_REFUSED, lag_s, False)
    first_s, last_s = times_s[0], times_s[-1]
    tpot_s = (last_s - first_s) / (num_tokens - 1) if num_tokens > 1 else None
    is_met = slo.is_met(ttft_s=first_s - due_s, tpot_s=tpot_s, e2e_s=last_s - due_s)
    return first_s - due_s, last_s - due_s, np.nan if tpot_s is None else tpot_s, lag_s, is_met
