"""What an answer takes besides the model."""

import numpy as np

from benchmarks.alpaserve.fidelity.load import TEXT, TIMEOUT_S, send
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem
from headway.planner.placement.planning.prediction import rules_of
from headway.planner.placement.simulator import simulate
from headway.planner.placement.workload import Workload

NUM_REQUESTS = 40
PERCENTILE = 90
_PAUSE_S = 0.05
_STEP_S = 1e-4
"""What the overhead is rounded to, one at least."""


async def measure_overhead(
    problem: PlacementProblem, placement: Placement, *, endpoint: str, text: str = TEXT
) -> float:
    """Seconds from the client to the group and back, besides the profile's: a high percentile over requests that come
    one after the other, to each model in turn, on a stack where the placement is live.

    Raises:
        HeadwayError: a request was not answered.
    """
    models = problem.placed_models
    apart_s = max(profile.latency_s for profile in problem.profiles) + _PAUSE_S
    workload = Workload(
        models=tuple(model.name for model in models),
        arrival_s=np.linspace(0.0, apart_s * (NUM_REQUESTS - 1), NUM_REQUESTS),
        model=(np.arange(NUM_REQUESTS) % len(models)).astype(np.int32),
        slo_s=np.full(NUM_REQUESTS, TIMEOUT_S),
    )
    alone = simulate(models, placement, workload, rules_of(problem))
    seen = await send(workload, endpoint=endpoint, text=text)
    besides_s = seen.latency_s - (alone.finish_s - workload.arrival_s)
    overhead_s = _STEP_S * max(1, round(float(np.percentile(besides_s, PERCENTILE)) / _STEP_S))
    print(f"\nan answer takes {1000 * overhead_s:.1f} ms besides the model", flush=True)
    return overhead_s


def answer_overhead(overhead_s: float) -> tuple[str, str]:
    """The option of `headway up`."""
    return "--answer-overhead", f"{1000 * overhead_s:.1f}ms"
