"""Finds the objectives that cannot be met, and the best that can. Pure."""

from collections.abc import Iterator

import numpy as np

from headway.core.held_memory import held_bytes
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem, ProblemModel
from headway.core.stage_profile import StageProfile
from headway.core.units import format_bytes, format_duration
from headway.planner.placement.planning.prediction import rules_of
from headway.planner.placement.simulator import Rules
from headway.planner.placement.workload import Workload


def findings_of(problem: PlacementProblem, placement: Placement, workload: Workload) -> tuple[str, ...]:
    """Returns the findings in sentences, one for each model that no group serves."""
    placed = {name for group in placement.groups for name in group.models}
    longest_s = np.zeros(len(problem.models))
    np.maximum.at(longest_s, workload.model, workload.slo_s)
    return tuple(
        finding
        for model, slo_s in zip(problem.models, longest_s, strict=True)
        if slo_s and model.name not in placed
        for finding in _of_model(problem, model, float(slo_s), rules_of(problem))
    )


def _of_model(problem: PlacementProblem, model: ProblemModel, slo_s: float, rules: Rules) -> Iterator[str]:
    profiles, kinds = problem.profiles_of(model), problem.kinds
    of_profile = {
        profile: kind
        for profile in profiles
        for kind in kinds
        if kind.device in ("", profile.hardware) and kind.span(profile.pp, profile.op)
    }
    if not of_profile:
        most, fewest = max(kind.largest_group for kind in kinds), min(each.pp * each.op for each in profiles)
        stage = max(kind.largest_node for kind in kinds)
        within = f", and each of its stages {stage}" if any(kind.is_joined for kind in kinds) else ""
        yield f"'{model.name}' has profiles from {fewest} devices on, and a group can have {most} here{within}."
        return

    def lacking_bytes(profile: StageProfile) -> int:
        return max(held_bytes(profile, problem.memory_rule)) - of_profile[profile].memory_bytes

    fitting = [profile for profile in of_profile if lacking_bytes(profile) <= 0]
    if not fitting:
        least = min(of_profile, key=lacking_bytes)
        has_bytes = of_profile[least].memory_bytes
        yield (
            f"'{model.name}' fits nowhere: spread the thinnest, over {least.pp}x{least.op}, it needs "
            f"{format_bytes(lacking_bytes(least) + has_bytes)} on a device, and there are {format_bytes(has_bytes)}."
        )
        return
    if model.generates:
        yield _of_generating(problem, model, fitting, rules)
        return
    fastest = min(fitting, key=lambda profile: alone_s(profile, rules))
    if alone_s(fastest, rules) > slo_s:
        scale = alone_s(fastest, rules) / problem.latency_s(model)
        yield (
            f"'{model.name}' cannot meet its objective of {format_duration(slo_s)}: alone on the fastest group that it "
            f"fits, {fastest.pp}x{fastest.op}, it takes {format_duration(alone_s(fastest, rules))}. The tightest SLO "
            f"scale for it is {scale:.2f}."
        )
        return
    yield _no_room_left(model)


def _no_room_left(model: ProblemModel) -> str:
    return f"'{model.name}' is on no group: there was no room left that other models did not make better use of."


def _of_generating(problem: PlacementProblem, model: ProblemModel, fitting: list[StageProfile], rules: Rules) -> str:
    assert model.prompt is not None
    alone = [profile.generation.alone_s(model.prompt.mean) for profile in fitting if profile.generation is not None]
    ttft_s, tpot_s = min(each[0] for each in alone) + rules.request_overhead_s, min(each[1] for each in alone)
    if problem.token_slo(model).is_met(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=None):
        return _no_room_left(model)
    return (
        f"'{model.name}' cannot meet its objectives: alone on the fastest group that it fits, the first token takes "
        f"{format_duration(ttft_s)} and each further one {format_duration(tpot_s)}."
    )


def alone_s(profile: StageProfile, rules: Rules) -> float:
    """Returns the latency of one request on an idle group."""
    return profile.latency_s * (1 + rules.stage_overhead * profile.pp) + rules.request_overhead_s
