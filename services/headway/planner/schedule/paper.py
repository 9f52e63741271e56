"""The search as the paper has it: algorithm 1 with Z3, one assignment of micro-batches after the other (sections IV-B
and V). Kept for the comparison with one model of CP-SAT, and raced with it.

Two things of the paper's text are mended: indices are in [0, N_R) (equation (3)), and property 4.2 holds for the
predecessor's index. Memory is counted by the order of starts instead of by time slots, which is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from headway.core.errors import FailedPreconditionError
from headway.planner.schedule.bounds import most_repetend
from headway.planner.schedule.kernels import Found, Limits
from headway.planner.schedule.problem import Problem
from headway.planner.schedule.repetend import Kernel

_CALL_MS = 10_000
"""Of one question to Z3, before it counts as answered with no."""


def has_z3() -> bool:
    return find_spec("z3") is not None


def search_paper_kernel(problem: Problem, limits: Limits, *, should_stop: Callable[[], bool] = lambda: False) -> Found:
    """Algorithm 1: N_R from 1 upwards, every assignment that property 4.2 allows, and the shortest period of each;
    ends at the lower bound.

    Raises:
        FailedPreconditionError: the memory admits none, or there is no Z3, or it found none before it was stopped.
    """
    if not has_z3():
        raise FailedPreconditionError("Z3 is not installed.", hint="`pip install headway[z3]` installs it.")
    best, is_sure = None, True
    most = most_repetend(problem, problem.lower_bound)
    optimal = sum(problem.times) + sum(lag for _, _, lag in problem.edges) + 1
    for num_micro_batches in range(1, min(most, limits.most_repetend or most) + 1):
        for indices in assignments(problem, num_micro_batches):
            if should_stop():
                return _found(problem, best, is_complete=False)
            repetend = _Repetend(problem, indices)
            kernel = repetend.shortest(below=optimal)
            is_sure = is_sure and repetend.is_sure
            if kernel is None:
                continue
            best, optimal = kernel, kernel.period
            if optimal == problem.lower_bound:
                return Found(kernel=best, bound=optimal, is_smallest=is_sure)
    return _found(problem, best, is_complete=is_sure and (limits.most_repetend or most) >= most)


def assignments(problem: Problem, num_micro_batches: int) -> Iterator[tuple[int, ...]]:
    """IterRepetendBlocks: indices of tasks in [0, N_R), none below that of a task that needs it (property 4.2), with
    both ends taken, so that each assignment is of one N_R only; those that the memory never admits are left out."""
    indices = [0] * problem.num_tasks
    after: list[list[int]] = [[j for i, j, _ in problem.edges if i == task] for task in range(problem.num_tasks)]
    order = problem.order[::-1]

    def place(at: int) -> Iterator[tuple[int, ...]]:
        if at == len(order):
            if min(indices) == 0 and max(indices) == num_micro_batches - 1 and _enters(problem, indices):
                yield tuple(indices)
            return
        task = order[at]
        for index in range(max((indices[j] for j in after[task]), default=0), num_micro_batches):
            indices[task] = index
            yield from place(at + 1)

    return place(0)


def _enters(problem: Problem, indices: Sequence[int]) -> bool:
    """Whether what ran before a repetition fits."""
    return problem.capacities is None or all(
        sum(indices[i] * problem.memory[i] for i in on) <= capacity
        for on, capacity in zip(problem.on, problem.capacities, strict=True)
    )


def _found(problem: Problem, best: Kernel | None, *, is_complete: bool) -> Found:
    if best is None:
        why = "No schedule fits the memory." if is_complete else "Z3 found no repetend in its time."
        raise FailedPreconditionError(why, hint="Give devices more memory, or the search more time.")
    return Found(kernel=best, bound=best.period if is_complete else problem.lower_bound, is_smallest=False)


class _Repetend:
    """RepetendSolver: the starts of one assignment as integers of Z3, and its period.

    Attributes:
        is_sure: whether Z3 has answered all that it was asked.
    """

    def __init__(self, problem: Problem, indices: Sequence[int]) -> None:
        import z3

        self.is_sure = True
        self._z3, self._problem, self._indices = z3, problem, indices
        context = z3.Context()
        self._solver = z3.SolverFor("QF_LIA", ctx=context)
        self._solver.set("timeout", _CALL_MS)
        self._period = z3.Int("period", context)
        self._starts = [z3.Int(f"s{i}", context) for i in range(problem.num_tasks)]
        self._solver.add(*[start >= 0 for start in self._starts], *self._dependencies(), *self._devices())
        self._solver.add(*self._memory())

    def shortest(self, *, below: int) -> Kernel | None:
        """The shortest period below another, by bisection; None where there is none."""
        best = self._at_most(below - 1)
        low = self._problem.lower_bound
        while best is not None and low < best.period:
            middle = (low + best.period - 1) // 2
            better = self._at_most(middle)
            if better is None:
                low = middle + 1
            else:
                best = better
        return best

    def _at_most(self, period: int) -> Kernel | None:
        self._solver.push()
        self._solver.add(self._period <= period, self._period >= self._problem.lower_bound)
        found = None
        answer = self._solver.check()
        self.is_sure = self.is_sure and answer != self._z3.unknown
        if answer == self._z3.sat:
            model = self._solver.model()
            starts = [model.eval(start, model_completion=True).as_long() for start in self._starts]
            found = Kernel(
                period=model.eval(self._period).as_long(),
                indices=tuple(self._indices),
                starts=tuple(start - min(starts) for start in starts),
            )
        self._solver.pop()
        return found

    def _dependencies(self) -> Iterator[Any]:
        """[3] of equation (1), over the periods between both tasks' micro-batches."""
        for i, j, lag in self._problem.edges:
            ahead = self._indices[i] - self._indices[j]
            yield self._starts[j] + ahead * self._period >= self._starts[i] + self._problem.times[i] + lag

    def _devices(self) -> Iterator[Any]:
        """[1] of equation (1), and E_R + W_R of equation (4): all of a device's tasks within one period."""
        times, starts = self._problem.times, self._starts
        pairs = {(i, j) for on in self._problem.on for i in on for j in on if i < j}
        for i, j in sorted(pairs):
            yield self._z3.Or(starts[i] + times[i] <= starts[j], starts[j] + times[j] <= starts[i])
            yield starts[i] + times[i] - starts[j] <= self._period
            yield starts[j] + times[j] - starts[i] <= self._period
        yield from (self._period >= time for time in times)

    def _memory(self) -> Iterator[Any]:
        """[2] of equation (1) for a repetition, with what enters it."""
        memory, z3 = self._problem.memory, self._z3
        for on, capacity in zip(self._problem.on, self._problem.capacities or (), strict=False):
            entering = sum(self._indices[i] * memory[i] for i in on)
            for i in (each for each in on if memory[each] > 0):
                before = [z3.If(self._starts[k] < self._starts[i], memory[k], 0) for k in on if k != i and memory[k]]
                yield entering + memory[i] + sum(before) <= capacity
