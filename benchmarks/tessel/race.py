"""The paper's search with Z3 beside one model of CP-SAT, and both in a race."""

import time
from collections.abc import Iterator
from functools import partial

from benchmarks.tessel.row import Row, timed
from benchmarks.tessel.table2 import PUBLIC_CPU_S, SHAPES
from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.core.schedule_search import Solver
from headway.planner.schedule.kernels import Found, Limits
from headway.planner.schedule.problem import Problem, make_problem
from headway.planner.schedule.race import solve_kernel

_MOST_S = 120.0
_EFFORT = 10.0


def race_rows() -> Iterator[Row]:
    """The repetend alone, with 4 devices. Z3 is stopped after two minutes of its own processor time."""
    for shape in SHAPES:
        problem = make_problem(named_placement(shape, 4, ShapeOptions()))
        for solver in Solver:
            found, cpu_s = timed(partial(_solved, problem, Limits(solver=solver, effort=_EFFORT)))
            proven = ", the smallest" if found.is_smallest else ""
            public = f"; the public code {PUBLIC_CPU_S[shape]} s" if solver is Solver.Z3 else ""
            yield Row(
                part="solvers",
                case=f"{shape}, {solver}",
                found=f"period {found.kernel.period} (bound {problem.lower_bound}), "
                f"N_R {found.kernel.num_micro_batches}{proven}",
                target=f"no bubble{public}",
                cpu_s=cpu_s,
                is_met=found.kernel.period == problem.lower_bound,
            )


def _solved(problem: Problem, limits: Limits) -> Found:
    until_s = time.process_time() + _MOST_S
    return solve_kernel(problem, limits, should_stop=lambda: time.process_time() > until_s)
