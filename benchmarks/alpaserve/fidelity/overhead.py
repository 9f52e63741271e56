"""Measures what an answer takes besides the model."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.alpaserve.fidelity.generated_load import send_generated
from benchmarks.alpaserve.fidelity.load import TEXT, TIMEOUT_S, send
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem
from headway.core.slo import Slo
from headway.planner.placement.planning.prediction import rules_of
from headway.planner.placement.simulator import simulate
from headway.planner.placement.workload import Lengths, Workload

NUM_REQUESTS = 40
PERCENTILE = 90
_PAUSE_S = 0.05
_ORDER_S = 0.02
"""Between two that come together, so that a group they share gets them in the order that is simulated."""
_STEP_S = 1e-4
"""What the overhead is rounded to, one at least."""


async def measure_overhead(
    problem: PlacementProblem, placement: Placement, *, endpoint: str, text: str = TEXT, num_together: int = 1
) -> float:
    """Seconds from the client to the group and back, besides the profile's: a high percentile over requests that come
    one after the other, to each model in turn, on a stack where the placement is live. Of a model that generates they
    are prompts of the mean length, and ask for one token.

    Args:
        num_together: requests that come at (almost) once, so that workers compute beside each other as they were
            profiled; then all are answered before more come.

    Raises:
        HeadwayError: a request was not answered.
    """
    models, number = problem.placed_models, np.arange(NUM_REQUESTS) % len(problem.models)
    longest_s = max(
        problem.alone_s(model)[0] if model.generates else problem.latency_s(model) for model in problem.models
    )
    apart_s = num_together * (longest_s + _ORDER_S) + _PAUSE_S
    turn, place = np.divmod(np.arange(NUM_REQUESTS), num_together)
    workload = Workload(
        models=tuple(model.name for model in models),
        arrival_s=turn * apart_s + place * _ORDER_S,
        model=number.astype(np.int32),
        slo_s=np.full(NUM_REQUESTS, TIMEOUT_S),
        lengths=_first_tokens(problem, number) if any(model.generates for model in models) else None,
    )
    alone = simulate(models, placement, workload, rules_of(problem))
    if workload.lengths is None:
        seen = await send(workload, endpoint=endpoint, text=text)
    else:
        seen = await send_generated(workload, {model.name: Slo() for model in models}, endpoint=endpoint)
    besides_s = seen.latency_s - (alone.finish_s - workload.arrival_s)
    overhead_s = _STEP_S * max(1, round(float(np.percentile(besides_s, PERCENTILE)) / _STEP_S))
    print(f"\nan answer takes {1000 * overhead_s:.1f} ms besides the model", flush=True)
    return overhead_s


def _first_tokens(problem: PlacementProblem, number: NDArray[np.int64]) -> Lengths:
    """Lengths of requests to the models of these numbers that ask for one token."""
    prompt = [round(model.prompt.mean) if model.prompt is not None else 0 for model in problem.models]
    output = [int(model.generates) for model in problem.models]
    return Lengths(prompt=np.array(prompt, np.int32)[number], output=np.array(output, np.int32)[number])


def answer_overhead(overhead_s: float) -> tuple[str, str]:
    """Makes the option of `headway up` for an overhead."""
    return "--answer-overhead", f"{1000 * overhead_s:.1f}ms"
