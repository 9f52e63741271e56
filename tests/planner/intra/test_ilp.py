"""The integer program beside all choices of strategies."""

from itertools import product

import numpy as np
import pytest

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.planner.intra.elimination import eliminate
from headway.planner.intra.ilp import Solver, solve
from headway.planner.intra.problem import Edge, HeldTensor, StrategyProblem


def random_problem(seed: int) -> StrategyProblem:
    """Up to seven nodes with up to four strategies; some pairs exclude each other."""
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.integers(1, 5, int(rng.integers(2, 8)))]
    edges = []
    for _ in range(int(rng.integers(1, 2 * len(sizes)))):
        source, target = (int(node) for node in rng.choice(len(sizes), 2, replace=False))
        cost_s = rng.integers(0, 9, (sizes[source], sizes[target])).astype(np.float64)
        cost_s[rng.random(cost_s.shape) < 0.1] = np.inf
        edges.append(Edge(source=source, target=target, cost_s=cost_s))
    tensors = [
        HeldTensor(node=node, shard_bytes=rng.integers(0, 20, sizes[node]).astype(np.float64))
        for node in (int(n) for n in rng.integers(0, len(sizes), 2 * len(sizes)))
    ]
    live = [sorted({int(t) for t in rng.integers(0, len(tensors), 5)}) for _ in range(4)]
    return StrategyProblem(
        cost_s=[rng.integers(0, 9, size).astype(np.float64) for size in sizes],
        edges=edges,
        tensors=tensors,
        live=live,
        memory_limit_bytes=float(rng.integers(10, 60)) if seed % 3 else None,
    )


def brute_force(problem: StrategyProblem) -> float:
    """The least cost of all choices that fit; infinite where none does."""
    limit = problem.memory_limit_bytes
    choices = product(*(range(costs.size) for costs in problem.cost_s))
    fitting = (choice for choice in choices if limit is None or problem.peak_bytes(choice) <= limit)
    return min((problem.objective_s(choice) for choice in fitting), default=np.inf)


@pytest.mark.parametrize("solver", list(Solver))
@pytest.mark.parametrize("seed", range(120))
def test_equals_the_best_of_all_choices(seed: int, solver: Solver) -> None:
    problem = random_problem(seed)
    expected = brute_force(problem)
    if expected == np.inf:
        with pytest.raises(FailedPreconditionError, match="No choice of strategies"):
            solve(problem, solver=solver)
        return
    solution = solve(problem, solver=solver)
    assert solution.is_optimal
    assert solution.cost_s == pytest.approx(expected)
    assert solution.cost_s == problem.objective_s(solution.strategies)
    assert problem.memory_limit_bytes is None or solution.peak_bytes <= problem.memory_limit_bytes


@pytest.mark.parametrize("seed", range(200))
def test_elimination_finds_the_best_where_memory_does_not_matter(seed: int) -> None:
    problem = random_problem(3 * seed)
    found = eliminate([costs[:, None] for costs in problem.cost_s], problem.edges)
    assert found is not None
    choice = [int(found.strategies[node][0]) for node in range(len(problem.cost_s))]
    assert problem.objective_s(choice) == pytest.approx(brute_force(problem))


def test_a_graph_too_wide_for_tables_is_left_to_the_program() -> None:
    rng = np.random.default_rng(0)
    costs = [rng.random(4) for _ in range(14)]
    edges = [Edge(source=a, target=b, cost_s=rng.random((4, 4))) for a in range(14) for b in range(a + 1, 14)]
    assert eliminate([each[:, None] for each in costs], edges) is None


def test_says_how_many_bytes_are_missing() -> None:
    costs = np.zeros(2)
    tensor = HeldTensor(node=0, shard_bytes=np.array([30.0, 20.0]))
    problem = StrategyProblem(cost_s=[costs], edges=[], tensors=[tensor], live=[[0]], memory_limit_bytes=12)
    with pytest.raises(FailedPreconditionError, match="8 more are needed"):
        solve(problem)


@pytest.mark.parametrize(
    ("cost_s", "edge_shape", "message"),
    [
        ([[1.0], []], (1, 1), r"cost_s\[1\] has no strategies"),
        ([[1.0], [np.nan]], (1, 1), r"cost_s\[1\] .* not a number"),
        ([[1.0], [1.0, 2.0]], (1, 1), r"edges\[0\] joins nodes with \(1, 2\) strategies"),
    ],
)
def test_names_what_is_wrong_with_a_problem(
    cost_s: list[list[float]], edge_shape: tuple[int, int], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        StrategyProblem(
            cost_s=[np.array(costs) for costs in cost_s],
            edges=[Edge(source=0, target=1, cost_s=np.zeros(edge_shape))],
        )
