"""Requests over time against groups of a model that generates: continuous batching, KV blocks, preemption."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.core.generation import GenerationProfile
from headway.core.latency import LatencyModel
from headway.core.placement import PlacedModel
from headway.core.slo import Slo
from headway.planner.placement.simulator.engine_state import NUM_COEFFICIENTS, make_engines, make_requests
from headway.planner.placement.simulator.generation_kernel import make_router, serve_generated
from headway.planner.placement.simulator.kernel import Floats, Ints
from headway.planner.placement.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationWorkload:
    """Requests of one sequence each for one model, in the order of their arrival.

    Attributes:
        arrival_s: float64 [num_requests], from 0 on.
        num_prompt_tokens, num_output_tokens: int32 [num_requests], 1 at least; outputs are as long as they may be.
        slo_s: of the whole answers, float64 [num_requests]; infinite for none.
        slo: of first tokens, and of the time between tokens.
    """

    arrival_s: Floats
    num_prompt_tokens: Ints
    num_output_tokens: Ints
    slo_s: Floats
    slo: Slo


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationOutcome:
    """Attributes:
    ttft_s, e2e_s: of each request, from its arrival to its first and to its last token; float64 [num_requests],
        infinite where it was refused.
    tpot_s: between its tokens in the mean; not a number of a single one, and where it was refused.
    group: int32 [num_requests], -1 where it was refused.
    is_met: bool [num_requests], whether it kept all its bounds; refused ones did not.
    num_preemptions: how often it gave way, int32 [num_requests].
    num_steps, busy_s: of each group; seconds are those of all its stages together.
    """

    ttft_s: Floats
    e2e_s: Floats
    tpot_s: Floats
    group: Ints
    is_met: NDArray[np.bool_]
    num_preemptions: Ints
    num_steps: NDArray[np.int64]
    busy_s: Floats


def simulate_generation(
    workload: GenerationWorkload,
    groups: Sequence[GenerationProfile],
    *,
    admission: bool = True,
    overhead_s: float = 0.0,
) -> GenerationOutcome:
    """As the router dispatches and the workers' schedulers have it, step by step: without prefix cache, swapping and
    drafts. A request that is longer than one of the groups takes is refused, as at the gateway.

    Args:
        groups: one at least.
        admission: refuse at once what is foretold to miss a bound; else it is served late.
        overhead_s: added to each first token and each whole answer; holds no device.

    Raises:
        InvalidArgumentError: the workload is empty, out of order or has a request without tokens.
    """
    _check(workload, groups)
    count = len(workload.arrival_s)
    requests = make_requests(workload.arrival_s, workload.num_prompt_tokens, workload.num_output_tokens)
    max_stages = max(len(group.stage_latencies) for group in groups)
    stages = np.zeros((len(groups), max_stages, NUM_COEFFICIENTS))
    for number, group in enumerate(groups):
        stages[number, : len(group.stage_latencies)] = [_coefficients(each) for each in group.stage_latencies]
    engines = make_engines(
        np.array([_limits(group) for group in groups], np.int64),
        np.array([len(group.stage_latencies) for group in groups], np.int64),
        stages,
    )
    router = make_router(np.array([_coefficients(group.latency) for group in groups]), count)
    served_by = np.full(count, -1, np.int32)
    slo = workload.slo
    ttft_slo_s, tpot_slo_s = (np.inf if bound_s is None else bound_s for bound_s in (slo.ttft_s, slo.tpot_s))
    longest = min(group.longest for group in groups)
    serve_generated(
        engines,
        router,
        requests,
        workload.slo_s,
        ttft_slo_s,
        tpot_slo_s,
        longest,
        overhead_s,
        admission,
        served_by,
    )
    ttft_s = requests.first_s + overhead_s - workload.arrival_s
    e2e_s = requests.finish_s + overhead_s - workload.arrival_s
    gaps = np.where((workload.num_output_tokens > 1) & (served_by >= 0), workload.num_output_tokens - 1.0, np.nan)
    with np.errstate(invalid="ignore"):  # of those that were refused
        tpot_s = (requests.finish_s - requests.first_s) / gaps
    return GenerationOutcome(
        ttft_s=ttft_s,
        e2e_s=e2e_s,
        tpot_s=tpot_s,
        group=served_by,
        is_met=(served_by >= 0) & (ttft_s <= ttft_slo_s) & (e2e_s <= workload.slo_s) & ~(tpot_s > tpot_slo_s),
        num_preemptions=requests.num_preemptions,
        num_steps=engines.num_steps,
        busy_s=engines.busy_s,
    )


def generation_workload(workload: Workload, model: PlacedModel) -> GenerationWorkload:
    """Of requests for one model that generates."""
    assert workload.lengths is not None, "requests without lengths are refused before"
    return GenerationWorkload(
        arrival_s=workload.arrival_s,
        num_prompt_tokens=workload.lengths.prompt,
        num_output_tokens=workload.lengths.output,
        slo_s=workload.slo_s,
        slo=model.slo,
    )


def _coefficients(latency: LatencyModel) -> tuple[float, ...]:
    return (
        latency.base_s,
        latency.per_prefill_token_s,
        latency.per_prefill_pair_s,
        latency.per_decode_s,
        latency.per_context_token_s,
    )


def _limits(group: GenerationProfile) -> tuple[int, ...]:
    max_prefill = group.max_num_prefill_tokens or group.max_num_batched_tokens
    return (
        group.num_blocks,
        group.block_size,
        group.max_num_seqs,
        group.max_num_batched_tokens,
        -(-max_prefill // len(group.stage_latencies)),
        int(group.num_blocks * group.watermark),
    )


def _check(workload: GenerationWorkload, groups: Sequence[GenerationProfile]) -> None:
    arrival_s, prompt, output = workload.arrival_s, workload.num_prompt_tokens, workload.num_output_tokens
    if not len(arrival_s) == len(prompt) == len(output) == len(workload.slo_s) > 0:
        raise InvalidArgumentError(
            f"The workload has {len(arrival_s)} arrivals, {len(prompt)} prompts and {len(output)} outputs.",
            hint="Give one of each for every request, and one request at least.",
            field="workload",
        )
    for group in groups:
        if group.max_num_batched_tokens < group.max_num_seqs:
            raise InvalidArgumentError(
                f"max_num_batched_tokens is {group.max_num_batched_tokens}, below max_num_seqs.",
                hint="Every running sequence decodes in every step.",
                field="max_num_batched_tokens",
            )
    faults = [
        (~np.isfinite(arrival_s) | (arrival_s < 0), "arrives at no time from 0 on"),
        (np.diff(arrival_s, prepend=0.0) < 0, "comes before the one ahead of it"),
        ((prompt < 1) | (output < 1), "has no prompt or no output"),
    ]
    for is_at_fault, fault in faults:
        if is_at_fault.any():
            number = int(np.argmax(is_at_fault))
            raise InvalidArgumentError(
                f"Request {number} of the workload {fault}.", hint="Correct the request.", field="workload"
            )
