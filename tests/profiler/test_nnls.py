"""Non-negative least squares against what must hold at its solution."""

import numpy as np
import pytest

from headway.profiler.nnls import solve_nnls


@pytest.mark.parametrize("seed", range(30))
def test_the_solution_satisfies_the_optimality_conditions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, columns = int(generator.integers(3, 20)), int(generator.integers(1, 7))
    matrix = generator.normal(size=(rows, columns)) * 10.0 ** generator.integers(-4, 5, size=columns)
    target = generator.normal(size=rows)

    solution = solve_nnls(matrix, target)

    scaled = matrix / np.linalg.norm(matrix, axis=0)
    gradient = scaled.T @ (target - matrix @ solution)
    assert (solution >= 0).all()
    assert (gradient <= 1e-8).all(), "a coefficient should have grown"
    assert np.abs(gradient[solution > 0]).max(initial=0.0) < 1e-8, "a positive coefficient is not optimal"


def test_an_unconstrained_solution_that_is_positive_is_found_exactly() -> None:
    generator = np.random.default_rng(0)
    matrix, wanted = generator.random((12, 5)), np.array([1e-3, 2.0, 0.0, 5e2, 1.0])
    assert solve_nnls(matrix, matrix @ wanted) == pytest.approx(wanted, abs=1e-6)


def test_a_column_of_zeros_gets_no_weight() -> None:
    matrix = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert solve_nnls(matrix, np.array([2.0, 4.0])) == pytest.approx([2.0, 0.0])


def test_equal_columns_do_not_confuse_it() -> None:
    matrix = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    assert matrix @ solve_nnls(matrix, np.array([2.0, 4.0, 6.0])) == pytest.approx([2.0, 4.0, 6.0])
