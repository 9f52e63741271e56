"""Simulates groups that have models that generate: continuous batching, KV blocks, preemption.

Such a model may share its groups with others of its kind, and with models that answer in one pass; they take turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.core.generation import GenerationProfile
from headway.core.held_memory import side_by_side
from headway.core.latency import LatencyModel
from headway.core.placement import GroupShape, PlacedModel
from headway.core.slo import Slo
from headway.planner.placement.simulator.dispatch_kernel import serve_together
from headway.planner.placement.simulator.dispatch_state import Demand, Places, Record, Router, make_router
from headway.planner.placement.simulator.engine_state import (
    NUM_COEFFICIENTS,
    NUM_LIMITS,
    Counts,
    Engines,
    Lines,
    Requests,
    make_engines,
    make_lines,
    make_requests,
)
from headway.planner.placement.simulator.kernel import Floats, Ints, index_replicas
from headway.planner.placement.simulator.latencies import Latencies
from headway.planner.placement.simulator.predictor_kernel import LatencyPredictors, make_predictors
from headway.planner.placement.workload import Workload

OnePass: TypeAlias = tuple[float, ...]
"""Seconds of a request in each stage."""

CoLocatedModels: TypeAlias = Mapping[int, GenerationProfile | OnePass]
"""Models of a group, by their numbers; in the order in which its worker reports them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationWorkload:
    """Requests of one sequence each, in the order of their arrival.

    Attributes:
        arrival_s: float64 [num_requests], from 0 on.
        model: int32 [num_requests]; counts in `slos`.
        num_prompt_tokens, num_output_tokens: int32 [num_requests], 1 at least where the model generates; outputs are as
            long as they may be.
        slo_s: of the whole answers, float64 [num_requests]; infinite for none.
        slos: by model, of first tokens, and of the time between tokens.
    """

    arrival_s: Floats
    model: Ints
    num_prompt_tokens: Ints
    num_output_tokens: Ints
    slo_s: Floats
    slos: tuple[Slo, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationOutcome:
    """The simulated times of all requests.

    Attributes:
        ttft_s, e2e_s: of each request, from its arrival to its first and to its last token; float64 [num_requests],
            infinite where it was refused, or given up by its group. In one pass both are the answer's.
        tpot_s: between its tokens in the mean; not a number of a single one, of one pass, and where it was refused.
        group: int32 [num_requests], -1 where it was refused or given up.
        is_met: bool [num_requests], whether it kept all its bounds; refused ones did not.
        num_preemptions: how often it gave way, int32 [num_requests].
        num_steps, busy_s: of each group: steps of models that generate, and seconds of all its stages together.
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
    groups: Sequence[CoLocatedModels],
    *,
    admission: bool = True,
    overhead_s: float = 0.0,
) -> GenerationOutcome:
    """Simulates to the end; see `simulate_as_far`."""
    outcome = simulate_as_far(workload, groups, admission=admission, overhead_s=overhead_s)
    assert outcome is not None, "nothing stops it"
    return outcome


def simulate_as_far(
    workload: GenerationWorkload,
    groups: Sequence[CoLocatedModels],
    *,
    admission: bool = True,
    overhead_s: float = 0.0,
    bounds: Counts | None = None,
    limits: Counts | None = None,
    missed: Counts | None = None,
) -> GenerationOutcome | None:
    """Simulates the router's dispatch and the workers' schedulers step by step, without prefix cache, swapping and
    drafts. A request that is longer than one of its model's groups takes is refused, as at the gateway.

    Args:
        groups: one at least, each with a model or more, whose stages are as many.
        admission: refuse at once what is predicted to miss a bound, and give up what can only be late; else serve it.
        overhead_s: added to each first token and each whole answer; holds no device.
        bounds: requests by which each part of the trace ends, int64 [num_parts]; the last is their number.
        limits: misses up to the end of each part beyond which it is given up: None is returned then.
        missed: filled with what is known by the end of each part to have missed; from where it is given up on with the
            same, int64 [num_parts].

    Raises:
        InvalidArgumentError: the workload is empty, out of order or has a request without tokens.
    """
    co_located = [(g, model, profile) for g, group in enumerate(groups) for model, profile in group.items()]
    _check(workload, co_located)
    count = len(workload.arrival_s)
    plane = _plane(workload, groups, co_located, admission=admission, overhead_s=overhead_s)
    if bounds is None or limits is None:
        bounds, limits = np.array([count]), np.array([count])
    if not serve_together(*plane, bounds, limits, np.zeros_like(bounds) if missed is None else missed):
        return None
    requests, served_by = plane.requests, plane.record.served_by
    is_generated = np.isin(workload.model, plane.places.model[plane.places.generates])
    finish_s = np.where(served_by < 0, np.inf, requests.finish_s)
    first_s = np.where(served_by < 0, np.inf, requests.first_s)
    ttft_s = first_s + overhead_s - workload.arrival_s
    e2e_s = finish_s + overhead_s - workload.arrival_s
    has_gaps = is_generated & (workload.num_output_tokens > 1) & (served_by >= 0)
    with np.errstate(invalid="ignore"):  # of those that were refused
        tpot_s = (finish_s - first_s) / np.where(has_gaps, workload.num_output_tokens - 1.0, np.nan)
    return GenerationOutcome(
        ttft_s=ttft_s,
        e2e_s=e2e_s,
        tpot_s=tpot_s,
        group=np.array([*plane.places.group, -1], np.int32)[served_by],
        is_met=plane.record.is_met,
        num_preemptions=requests.num_preemptions,
        num_steps=np.bincount(plane.places.group, plane.engines.num_steps, len(groups)).astype(np.int64),
        busy_s=plane.lines.busy_s,
    )


class _Plane(NamedTuple):
    """The arrays that `serve_together` takes."""

    places: Places
    engines: Engines
    lines: Lines
    requests: Requests
    router: Router
    predictors: LatencyPredictors
    demand: Demand
    record: Record


def _plane(
    workload: GenerationWorkload,
    groups: Sequence[CoLocatedModels],
    co_located: Sequence[tuple[int, int, GenerationProfile | OnePass]],
    *,
    admission: bool,
    overhead_s: float,
) -> _Plane:
    count, num_models = len(workload.arrival_s), len(workload.slos)
    group = np.array([g for g, _, _ in co_located], np.int64)
    num_stages = np.ones(len(groups), np.int64)
    for g, _, profile in co_located:
        num_stages[g] = _num_stages(profile)
    max_stages = int(num_stages.max())
    generates = np.array([isinstance(profile, GenerationProfile) for _, _, profile in co_located])
    members = np.zeros((len(co_located), num_models), np.bool_)
    stages = np.zeros((len(co_located), max_stages, NUM_COEFFICIENTS))
    latency = np.zeros((len(co_located), NUM_COEFFICIENTS))
    limits = np.ones((len(co_located), NUM_LIMITS), np.int64)
    stage_s = np.zeros((len(co_located), max_stages))
    longest = np.full(num_models, np.iinfo(np.int64).max)
    for p, (_, model, profile) in enumerate(co_located):
        members[p, model] = True
        if isinstance(profile, GenerationProfile):
            stages[p, : len(profile.stage_latencies)] = [_coefficients(each) for each in profile.stage_latencies]
            latency[p] = _coefficients(profile.latency)
            limits[p] = _limits(profile)
            longest[model] = min(longest[model], profile.longest)
        else:
            stage_s[p, : len(profile)] = profile
            latency[p, 0] = sum(profile)
    model_start, of_model = index_replicas(members)
    slos = [(slo.ttft_s, slo.tpot_s) for slo in workload.slos]
    bounds_s = np.array([[np.inf if bound_s is None else bound_s for bound_s in slo] for slo in slos])
    return _Plane(
        places=Places(
            start=np.searchsorted(group, np.arange(len(groups) + 1)),
            of_model=of_model.astype(np.int64),
            model_start=model_start.astype(np.int64),
            group=group,
            model=np.array([model for _, model, _ in co_located], np.int64),
            generates=generates,
            stage_s=stage_s,
        ),
        engines=make_engines(group, limits, num_stages[group], stages),
        lines=make_lines(num_stages, max(map(len, groups))),
        requests=make_requests(workload.arrival_s, workload.num_prompt_tokens, workload.num_output_tokens),
        router=make_router(latency, num_groups=len(groups), num_models=num_models, num_requests=count),
        predictors=make_predictors(len(groups), max_stages, count),
        demand=Demand(
            model=workload.model,
            slo_s=workload.slo_s,
            ttft_s=np.ascontiguousarray(bounds_s[:, 0]),
            tpot_s=np.ascontiguousarray(bounds_s[:, 1]),
            longest=longest,
            overhead_s=overhead_s,
            admission=admission,
        ),
        record=Record(
            served_by=np.full(count, -1, np.int64),
            is_met=np.zeros(count, np.bool_),
            missed=np.zeros(1, np.int64),
            next_s=np.full(len(groups), np.inf),
        ),
    )


def generation_workload(workload: Workload, models: Sequence[PlacedModel]) -> GenerationWorkload:
    """Makes the workload for models of which some generate.

    Args:
        models: in the order in which the workload has their names.
    """
    assert workload.lengths is not None, "requests without lengths are refused before"
    return GenerationWorkload(
        arrival_s=workload.arrival_s,
        model=workload.model,
        num_prompt_tokens=workload.lengths.prompt,
        num_output_tokens=workload.lengths.output,
        slo_s=workload.slo_s,
        slos=tuple(model.slo for model in models),
    )


def co_located_models(shape: GroupShape, models: Sequence[PlacedModel], latencies: Latencies) -> CoLocatedModels:
    """The profiles of one group's models, whose memory they share, by their numbers in `latencies`, which may lack
    some.

    Args:
        models: that can run there; one at least.
    """
    row, number = latencies.shapes.index(shape), {name: index for index, name in enumerate(latencies.models)}
    profiles = [profile for model in models if (profile := model.on(shape)) is not None]
    generations = side_by_side(profiles, models[0].memory_rule)
    co_located: dict[int, GenerationProfile | OnePass] = {}
    for model, generation in zip(models, generations, strict=True):
        if model.name in number:
            one_pass = latencies.stage_s[row, number[model.name], 0, : shape.pp]
            co_located[number[model.name]] = tuple(one_pass.tolist()) if generation is None else generation
    return co_located


def _num_stages(profile: GenerationProfile | OnePass) -> int:
    return len(profile.stage_latencies) if isinstance(profile, GenerationProfile) else len(profile)


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


def _check(workload: GenerationWorkload, co_located: Sequence[tuple[int, int, GenerationProfile | OnePass]]) -> None:
    arrival_s, prompt, output = workload.arrival_s, workload.num_prompt_tokens, workload.num_output_tokens
    if not len(arrival_s) == len(prompt) == len(output) == len(workload.slo_s) == len(workload.model) > 0:
        raise InvalidArgumentError(
            f"The workload has {len(arrival_s)} arrivals, {len(prompt)} prompts and {len(output)} outputs.",
            hint="Give one of each for every request, and one request at least.",
            field="workload",
        )
    generating = [(model, profile) for _, model, profile in co_located if isinstance(profile, GenerationProfile)]
    for _, profile in generating:
        if profile.max_num_batched_tokens < profile.max_num_seqs:
            raise InvalidArgumentError(
                f"max_num_batched_tokens is {profile.max_num_batched_tokens}, below max_num_seqs.",
                hint="Every running sequence decodes in every step.",
                field="max_num_batched_tokens",
            )
    generated = np.isin(workload.model, [model for model, _ in generating])
    faults = [
        (~np.isfinite(arrival_s) | (arrival_s < 0), "arrives at no time from 0 on"),
        (np.diff(arrival_s, prepend=0.0) < 0, "comes before the one ahead of it"),
        (generated & ((prompt < 1) | (output < 1)), "has no prompt or no output"),
    ]
    for is_at_fault, fault in faults:
        if is_at_fault.any():
            number = int(np.argmax(is_at_fault))
            raise InvalidArgumentError(
                f"Request {number} of the workload {fault}.", hint="Correct the request.", field="workload"
            )
