"""Whether there is anything to search: what can't be served, and the best that could be."""

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import FailedPreconditionError, HeadwayError
from headway.planner.placement.search.problem import Problem


def check_feasible(problem: Problem, *, partial: bool) -> None:
    """FailedPreconditionError names the first model with requests that no group can serve, and the best achievable.

    Args:
        partial: that some models can be served is enough.
    """
    faults = [
        fault
        for model in np.flatnonzero(problem.counts)
        if not problem.everything >> int(model) & 1
        for fault in [_fault(problem, int(model))]
    ]
    if faults and (not partial or not problem.everything):
        raise faults[0]


def _too_slow(problem: Problem, model: int, fits: NDArray[np.bool_]) -> HeadwayError:
    """Returns why no group can serve a model that generates: its objectives are too tight, or its requests are too
    long.
    """
    placed, own = problem.generating[model], problem.workload.take(problem.workload.model == model)
    assert own.lengths is not None
    found = [placed.on(shape) for shape, fit in zip(problem.shapes, fits, strict=True) if fit]
    profiles = [profile.generation for profile in found if profile is not None and profile.generation is not None]
    shortest, room = (
        int((own.lengths.prompt + own.lengths.output).min()),
        max(each.longest for each in profiles),
    )
    if shortest > room:
        return FailedPreconditionError(
            f"{placed.name!r} has no request below {shortest} tokens, and the largest group takes {room}.",
            hint="Allow larger groups or more memory, or shorter requests.",
            field="memory_bytes",
        )
    alone = [each.alone_s(int(own.lengths.prompt.min())) for each in profiles]
    ttft_s, tpot_s = (min(seconds) for seconds in zip(*alone, strict=True))
    return FailedPreconditionError(
        f"{placed.name!r} can't keep its objectives: alone its shortest prompt takes {ttft_s:.3g} s to the first token "
        f"at best, and a token {tpot_s:.3g} s.",
        hint="Allow more time, or leave it out.",
        field="slo",
    )


def _fault(problem: Problem, model: int) -> HeadwayError:
    name = problem.latencies.models[model]
    latency_s = problem.latencies.total_s[:, model] + problem.rules.request_overhead_s
    runs = np.isfinite(latency_s)
    if not runs.any():
        return FailedPreconditionError(
            f"{name!r} has no profile for at most {max(kind.largest_group for kind in problem.kinds)} devices.",
            hint="Profile it on such a shape, allow more devices, or allow groups across nodes (across_nodes).",
            field="models",
        )
    memory_bytes = np.array(problem.memory_bytes)
    smallest = int(np.where(runs, problem.weight_bytes[:, model], np.iinfo(np.int64).max).min())
    fits = runs & (problem.weight_bytes[:, model] <= memory_bytes)
    if model in problem.generating and fits.any():
        return _too_slow(problem, model, fits)
    if not fits.any():
        return FailedPreconditionError(
            f"{name!r} fits no group: it needs at least {smallest} bytes of a device's {memory_bytes[runs].max()}.",
            hint="Allow larger groups or more memory, or leave it out.",
            field="memory_bytes",
        )
    fastest = int(np.argmin(np.where(fits, latency_s, np.inf)))
    slo_s = problem.workload.slo_s[problem.workload.model == model].max()
    return FailedPreconditionError(
        f"{name!r} can't keep its SLO of {slo_s:g} s: the fastest answer takes {latency_s[fastest]:g} s, "
        f"on {problem.shapes[fastest]}.",
        hint=f"Allow at least {latency_s[fastest]:.3g} s, or leave it out.",
        field="slo_s",
    )
