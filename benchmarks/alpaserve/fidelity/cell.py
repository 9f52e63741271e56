"""Simulates and measures one workload."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from benchmarks.alpaserve.fidelity.generated_load import send_generated
from benchmarks.alpaserve.fidelity.load import TEXT, Observed, send
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem, WorkloadSource
from headway.planner.placement.planning.prediction import rules_of
from headway.planner.placement.simulator import SimulationOutcome, simulate
from headway.planner.placement.workload import Workload
from headway.planner.placement.workloads.source import make_workloads

SEED = 11

Relearn: TypeAlias = Callable[[PlacementProblem], Awaitable[PlacementProblem]]
"""Puts what a stack has learned of its models by now into a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A pattern of arrivals.

    Attributes:
        spec: as `headway plan serve --workload` takes it.
        files: content of what the specification names.
    """

    name: str
    spec: str
    files: Mapping[str, bytes]

    def problem(self, problem: PlacementProblem, *, slo_scale: float, duration_s: float) -> PlacementProblem:
        """The problem with these requests, and objectives of that scale."""
        length_s = 2 * duration_s if self.files else duration_s  # of a file the second half is held out
        source = WorkloadSource(spec=self.spec, duration_s=length_s, seed=SEED, slo_scale=slo_scale)
        return replace(problem, workload=source)

    def workload(self, problem: PlacementProblem, *, slo_scale: float, duration_s: float) -> Workload:
        """The held-out requests, not those that the placement was searched on; at the same times for every scale."""
        scaled = self.problem(problem, slo_scale=slo_scale, duration_s=duration_s)
        return make_workloads(scaled, self.files).held_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The result for one scale and pattern: shares of the requests that met their objective; refused ones did not.

    Attributes:
        answer_overhead_s: that both counted for each answer.
    """

    pattern: str
    slo_scale: float
    num_requests: int
    simulated: float
    measured: float
    simulated_refused: int
    measured_refused: int
    simulated_mean_latency_s: float
    measured_mean_latency_s: float
    client_lag_s: float
    answer_overhead_s: float

    @property
    def difference(self) -> float:
        """Measured minus simulated attainment."""
        return self.measured - self.simulated

    @property
    def slowness(self) -> float:
        """The mean time of an answer over the simulated one. Rows of a pattern have the same arrivals: where it differs
        much between them, the machine has changed its speed."""
        return self.measured_mean_latency_s / self.simulated_mean_latency_s

    @staticmethod
    def of(
        pattern: str, slo_scale: float, simulated: SimulationOutcome, measured: Observed, *, answer_overhead_s: float
    ) -> "Cell":
        return Cell(
            pattern=pattern,
            slo_scale=slo_scale,
            num_requests=len(measured.latency_s),
            simulated=simulated.attainment,
            measured=measured.attainment,
            simulated_refused=simulated.num_refused,
            measured_refused=measured.num_refused,
            simulated_mean_latency_s=simulated.mean_latency_s,
            measured_mean_latency_s=measured.mean_latency_s,
            client_lag_s=measured.lag_s,
            answer_overhead_s=answer_overhead_s,
        )


async def measure(
    problem: PlacementProblem,
    placement: Placement,
    *,
    patterns: Sequence[Pattern],
    slo_scales: Sequence[float],
    duration_s: float,
    endpoint: str,
    text: str = TEXT,
    answer_overhead_s: float = 0.0,
    relearn: Relearn | None = None,
) -> list[Cell]:
    """Measures each pattern at each scale, one after the other, on a stack where the placement is live.

    Args:
        answer_overhead_s: that the stack counts for each answer; the simulator then does too.
        relearn: before each row, of a stack that learns from its steps; objectives stay those of the problem.

    Raises:
        HeadwayError: a request was neither answered nor refused.
    """
    rules = replace(rules_of(problem), request_overhead_s=answer_overhead_s)
    cells = []
    for pattern, slo_scale in product(patterns, slo_scales):
        workload = pattern.workload(problem, slo_scale=slo_scale, duration_s=duration_s)
        models = pattern.problem(problem, slo_scale=slo_scale, duration_s=duration_s).placed_models
        known = problem if relearn is None else await relearn(problem)
        profiles = {model.name: model.profiles for model in known.placed_models}
        believed = [replace(model, profiles=profiles[model.name]) for model in models]
        simulated = simulate(believed, placement, workload, rules)
        if workload.lengths is None:
            measured = await send(workload, endpoint=endpoint, text=text)
        else:
            measured = await send_generated(workload, {model.name: model.slo for model in models}, endpoint=endpoint)
        cells.append(Cell.of(pattern.name, slo_scale, simulated, measured, answer_overhead_s=answer_overhead_s))
    return cells
