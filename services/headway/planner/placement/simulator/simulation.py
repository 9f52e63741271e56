"""Simulates a workload against a placement."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.core.generation import GenerationProfile
from headway.core.latency import LatencyModel
from headway.core.line import QueuePolicy
from headway.core.placement import PlacedModel, Placement
from headway.core.slo import Slo
from headway.planner.placement.check import check_placement, check_workload
from headway.planner.placement.simulator.batch_kernel import serve_batches
from headway.planner.placement.simulator.generation import (
    GenerationWorkload,
    co_located_models,
    generation_workload,
    simulate_generation,
)
from headway.planner.placement.simulator.kernel import Flags, Floats, Ints, serve
from headway.planner.placement.simulator.latencies import Latencies, latencies_of
from headway.planner.placement.simulator.outcome import SimulationOutcome
from headway.planner.placement.simulator.rules import Dispatch, Rules
from headway.planner.placement.simulator.slack_kernel import serve_by_slack
from headway.planner.placement.workload import Workload

_NO_TIME = LatencyModel(
    base_s=0.0, per_prefill_token_s=0.0, per_prefill_pair_s=0.0, per_decode_s=0.0, per_context_token_s=0.0
)
NO_FLOATS: Floats = np.empty(0)
NO_INTS: Ints = np.empty(0, np.int32)


def simulate(
    models: Sequence[PlacedModel], placement: Placement, workload: Workload, rules: Rules
) -> SimulationOutcome:
    """Simulates when each request is finished, and by whom.

    Raises:
        InvalidArgumentError: the workload is empty or out of order, or names unknown models; a group has a model that
            isn't among `models` or can't run on its shape.
    """
    _check(models, placement, workload, rules)
    finish_s, group = np.full(len(workload), np.inf), np.full(len(workload), -1, np.int32)
    met, busy_s = np.zeros(len(workload.models), np.int64), np.zeros(len(placement.groups))
    one_pass = np.ones(len(workload), np.bool_)
    record = _Record(finish_s=finish_s, group=group, met=met, busy_s=busy_s)
    for numbers, names in _generating_parts(models, placement, workload):
        chosen = np.isin(workload.model, [workload.models.index(name) for name in names if name in workload.models])
        one_pass &= ~chosen
        if chosen.any():
            _generate(models, placement, workload, rules, chosen, numbers, record)
    if one_pass.any():
        part = workload.take(one_pass)
        part_s, part_group = np.empty(len(part)), np.empty(len(part), np.int32)
        _, part_met, part_busy_s = _run(_arrays(models, placement, part, rules), part, rules, part_s, part_group)
        finish_s[one_pass], group[one_pass] = part_s, part_group
        met += part_met
        busy_s += part_busy_s
    counts = np.bincount(workload.model, minlength=len(workload.models))
    served = group >= 0
    span_s = float(finish_s[served].max() - workload.arrival_s[0]) if served.any() else 0.0
    devices_s = [placed.shape.num_devices * span_s for placed in placement.groups]
    return SimulationOutcome(
        attainment=1 - (len(workload) - int(met.sum())) / len(workload),
        attainment_by_model={
            name: float(met[index] / counts[index]) for index, name in enumerate(workload.models) if counts[index]
        },
        arrival_s=workload.arrival_s,
        finish_s=finish_s,
        group=group,
        utilisation=tuple(
            float(busy) / available if available > 0 else 0.0 for busy, available in zip(busy_s, devices_s, strict=True)
        ),
    )


def attainment(models: Sequence[PlacedModel], placement: Placement, workload: Workload, rules: Rules) -> float:
    """Share of requests that meet their SLO; several times as fast as `simulate`, which see for the errors."""
    if _generating(models, workload):
        return simulate(models, placement, workload, rules).attainment
    _check(models, placement, workload, rules)
    missed, _, _ = _run(_arrays(models, placement, workload, rules), workload, rules, NO_FLOATS, NO_INTS)
    return 1 - missed / len(workload)


def compile_kernels(rules: Rules, *, generation: bool = False) -> float:
    """Compile what these rules need, or load it from numba's cache: the seconds that took.

    Args:
        generation: also for models that generate.
    """
    began_s = time.perf_counter()
    workload = Workload(models=("none",), arrival_s=np.zeros(1), model=np.zeros(1, np.int32), slo_s=np.full(1, np.inf))
    latencies = latencies_of([], [], rules)
    empty = _Arrays(latencies=latencies, group_shape=NO_INTS, members=np.zeros((0, 1), np.bool_))
    _run(empty, workload, rules, NO_FLOATS, NO_INTS)
    if generation:
        one = np.ones(1, np.int32)
        requests = GenerationWorkload(
            arrival_s=np.zeros(1),
            model=np.zeros(1, np.int32),
            num_prompt_tokens=one,
            num_output_tokens=one,
            slo_s=np.full(1, np.inf),
            slos=(Slo(),),
        )
        profile = GenerationProfile(latency=_NO_TIME, stage_latencies=(_NO_TIME,), num_blocks=1, max_num_seqs=1)
        simulate_generation(requests, [{0: profile}])
    return time.perf_counter() - began_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Arrays:
    """A placement: `group_shape` int32 [num_groups] counts in the shapes, `members` bool [num_groups, num_models]."""

    latencies: Latencies
    group_shape: Ints
    members: Flags


def _check(models: Sequence[PlacedModel], placement: Placement, workload: Workload, rules: Rules) -> None:
    check_workload(workload, models)
    check_placement(placement, models)
    generating = _generating(models, workload)
    if generating and replace(rules, request_overhead_s=0.0) != Rules.SERVING:
        raise InvalidArgumentError(
            f"{generating[0].name!r} generates, which these rules know nothing of.",
            hint="Simulate it with --rules serving.",
            field="rules",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Record:
    """The record that a kernel fills in: for each request, model and group."""

    finish_s: Floats
    group: Ints
    met: NDArray[np.int64]
    busy_s: Floats


def _generating(models: Sequence[PlacedModel], workload: Workload) -> list[PlacedModel]:
    """Returns the requests to models that generate."""
    return [model for model in models if model.generates and model.name in workload.models]


def _generating_parts(
    models: Sequence[PlacedModel], placement: Placement, workload: Workload
) -> list[tuple[list[int], set[str]]]:
    """Groups that share models, directly or over others, and their models; where one generates."""
    parts: list[tuple[list[int], set[str]]] = []
    for number, placed in enumerate(placement.groups):
        if not placed.models:
            continue
        numbers, names = [number], set(placed.models)
        for part in [part for part in parts if part[1] & names]:
            parts.remove(part)
            numbers, names = [*part[0], *numbers], names | part[1]
        parts.append((sorted(numbers), names))
    generating = {model.name for model in _generating(models, workload)}
    return [part for part in parts if part[1] & generating]


def _generate(
    models: Sequence[PlacedModel],
    placement: Placement,
    workload: Workload,
    rules: Rules,
    chosen: Flags,
    numbers: list[int],
    record: _Record,
) -> None:
    """Fills in the requests that are `chosen`, and the groups of these numbers."""
    by_name = {model.name: model for model in models}
    own, groups = workload.take(chosen), [placement.groups[number] for number in numbers]
    known = [by_name[name] for name in workload.models]
    latencies = latencies_of(known, sorted({group.shape for group in groups}), rules)
    outcome = simulate_generation(
        generation_workload(own, known),
        [co_located_models(group.shape, [by_name[name] for name in group.models], latencies) for group in groups],
        admission=rules.admission,
        overhead_s=rules.request_overhead_s,
    )
    record.finish_s[chosen] = own.arrival_s + outcome.e2e_s
    record.group[chosen] = np.where(outcome.group < 0, -1, np.array(numbers, np.int32)[outcome.group])
    record.busy_s[numbers] += outcome.busy_s * [group.shape.op for group in groups]
    record.met[:] += np.bincount(own.model[outcome.is_met], minlength=len(workload.models))


def _arrays(models: Sequence[PlacedModel], placement: Placement, workload: Workload, rules: Rules) -> _Arrays:
    by_name = {model.name: model for model in models}
    column = {name: index for index, name in enumerate(workload.models)}
    shapes = sorted({group.shape for group in placement.groups})
    members = np.zeros((len(placement.groups), len(column)), np.bool_)
    for row, group in enumerate(placement.groups):
        for name in group.models:
            if name in column:
                members[row, column[name]] = True
    return _Arrays(
        latencies=latencies_of([by_name[name] for name in workload.models], shapes, rules),
        group_shape=np.array([shapes.index(group.shape) for group in placement.groups], np.int32),
        members=members,
    )


def _run(
    arrays: _Arrays, workload: Workload, rules: Rules, finish_s: Floats, served_by: Ints
) -> tuple[int, NDArray[np.int64], Floats]:
    """Requests that missed, requests met by model, device seconds by group."""
    latencies = arrays.latencies
    op = np.array([shape.op for shape in latencies.shapes], np.float64)[arrays.group_shape]
    slo_s = rounded(workload.slo_s, rules)
    if rules.max_batch_size > 1:
        missed, met, busy_s = serve_batches(
            workload.arrival_s,
            workload.model,
            slo_s,
            arrays.group_shape,
            arrays.members,
            latencies.num_stages,
            latencies.stage_s,
            latencies.period_s,
            latencies.total_s,
            rules.request_overhead_s,
            rules.admission,
            finish_s,
            served_by,
        )
        return int(missed), met, busy_s * op
    whole = np.array([len(workload)])
    misses, met, _, by_group = serve_one_by_one(
        workload.arrival_s,
        workload.model,
        slo_s,
        arrays.group_shape,
        arrays.members,
        latencies.num_stages,
        latencies.stage_s[:, :, 0, :],
        rules,
        whole,
        whole,
        finish_s,
        served_by,
    )
    total_s = np.where(by_group > 0, latencies.total_s[arrays.group_shape], 0.0)
    return int(misses[-1]), met, (by_group * total_s).sum(axis=1) * op


def serve_one_by_one(
    arrival_s: Floats,
    model: Ints,
    slo_s: Floats,
    group_shape: Ints,
    members: Flags,
    num_stages: Ints,
    stage_s: Floats,
    rules: Rules,
    bounds: NDArray[np.int64],
    limits: NDArray[np.int64],
    finish_s: Floats,
    served_by: Ints,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Serves requests one by one, by the kernel of the rules' queue policy; arguments and results are those of
    `kernel.serve`.
    """
    cluster = (group_shape, members, num_stages, stage_s)
    if rules.queue_policy is QueuePolicy.LEAST_SLACK:
        return serve_by_slack(
            arrival_s, model, slo_s, *cluster, rules.request_overhead_s, bounds, limits, finish_s, served_by
        )
    by_finish = rules.dispatch is Dispatch.EARLIEST_FINISH
    return serve(
        arrival_s,
        model,
        slo_s,
        *cluster,
        rules.request_overhead_s,
        by_finish,
        rules.admission,
        bounds,
        limits,
        finish_s,
        served_by,
    )


def rounded(slo_s: Floats, rules: Rules) -> Floats:
    """SLOs as the rules compare them."""
    return slo_s.astype(np.float32).astype(np.float64) if rules.single_precision else slo_s
