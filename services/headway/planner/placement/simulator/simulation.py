"""A workload against a placement."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.core.generation import GenerationProfile
from headway.core.latency import LatencyModel
from headway.core.placement import PlacedModel, Placement
from headway.core.slo import Slo
from headway.planner.placement.check import check_placement, check_workload
from headway.planner.placement.simulator.batch_kernel import serve_batches
from headway.planner.placement.simulator.generation import (
    GenerationWorkload,
    generation_workload,
    simulate_generation,
)
from headway.planner.placement.simulator.kernel import Flags, Floats, Ints, serve
from headway.planner.placement.simulator.latencies import Latencies, latencies_of
from headway.planner.placement.simulator.outcome import Outcome
from headway.planner.placement.simulator.rules import Dispatch, Rules
from headway.planner.placement.workload import Workload

_NO_TIME = LatencyModel(
    base_s=0.0, per_prefill_token_s=0.0, per_prefill_pair_s=0.0, per_decode_s=0.0, per_context_token_s=0.0
)
NO_FLOATS: Floats = np.empty(0)
NO_INTS: Ints = np.empty(0, np.int32)


def simulate(models: Sequence[PlacedModel], placement: Placement, workload: Workload, rules: Rules) -> Outcome:
    """When each request is finished, and by whom.

    Raises:
        InvalidArgumentError: the workload is empty or out of order, or names unknown models; a group has a model that
            isn't among `models` or can't run on its shape.
    """
    _check(models, placement, workload, rules)
    finish_s, group = np.full(len(workload), np.inf), np.full(len(workload), -1, np.int32)
    met, busy_s = np.zeros(len(workload.models), np.int64), np.zeros(len(placement.groups))
    one_pass = np.ones(len(workload), np.bool_)
    for number, model in _generating(models, workload):
        chosen = workload.model == number
        one_pass &= ~chosen
        met[number] = _generate(model, placement, workload.take(chosen), rules, chosen, finish_s, group, busy_s)
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
    return Outcome(
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
            arrival_s=np.zeros(1), num_prompt_tokens=one, num_output_tokens=one, slo_s=np.full(1, np.inf), slo=Slo()
        )
        simulate_generation(
            requests, [GenerationProfile(latency=_NO_TIME, stage_latencies=(_NO_TIME,), num_blocks=1, max_num_seqs=1)]
        )
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
            f"{generating[0][1].name!r} generates, which these rules know nothing of.",
            hint="Simulate it with --rules serving.",
            field="rules",
        )


def _generating(models: Sequence[PlacedModel], workload: Workload) -> list[tuple[int, PlacedModel]]:
    """With their numbers in the workload."""
    by_name = {model.name: model for model in models}
    return [
        (number, by_name[name])
        for number, name in enumerate(workload.models)
        if name in by_name and by_name[name].generates
    ]


def _generate(
    model: PlacedModel,
    placement: Placement,
    workload: Workload,
    rules: Rules,
    chosen: Flags,
    finish_s: Floats,
    group: Ints,
    busy_s: Floats,
) -> int:
    """Fills in the requests that are `chosen` and adds to its groups' device seconds; the number that was met."""
    homes = [number for number, placed in enumerate(placement.groups) if model.name in placed.models]
    if not homes or not len(workload):
        return 0
    shapes = [placement.groups[number].shape for number in homes]
    profiles = [profile.generation for shape in shapes if (profile := model.on(shape)) and profile.generation]
    outcome = simulate_generation(
        generation_workload(workload, model),
        profiles,
        admission=rules.admission,
        overhead_s=rules.request_overhead_s,
    )
    finish_s[chosen] = workload.arrival_s + outcome.e2e_s
    group[chosen] = np.where(outcome.group < 0, -1, np.array(homes, np.int32)[outcome.group])
    busy_s[homes] += outcome.busy_s * [shape.op for shape in shapes]
    return int(outcome.is_met.sum())


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
    misses, met, _, by_group = serve(
        workload.arrival_s,
        workload.model,
        slo_s,
        arrays.group_shape,
        arrays.members,
        latencies.num_stages,
        latencies.stage_s[:, :, 0, :],
        rules.request_overhead_s,
        rules.dispatch is Dispatch.EARLIEST_FINISH,
        rules.admission,
        np.array([len(workload)]),
        np.array([len(workload)]),
        finish_s,
        served_by,
    )
    total_s = np.where(by_group > 0, latencies.total_s[arrays.group_shape], 0.0)
    return int(misses[-1]), met, (by_group * total_s).sum(axis=1) * op


def rounded(slo_s: Floats, rules: Rules) -> Floats:
    """SLOs as the rules compare them."""
    return slo_s.astype(np.float32).astype(np.float64) if rules.single_precision else slo_s
