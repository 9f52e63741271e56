"""The shortest period, then the fewest micro-batches that a repetend needs for it: algorithm 1."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from headway.core.errors import FailedPreconditionError
from headway.core.schedule_search import Solver
from headway.planner.schedule.bounds import least_repetend, most_repetend
from headway.planner.schedule.problem import Problem
from headway.planner.schedule.repetend import Answer, Effort, Kernel, find_kernel, find_shortest

_CLOSE = 200
"""The period is searched to a part in so many, before a model with a free period takes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Attributes:
    effort: how much longer than usual solvers may try.
    proves: whether to go on until what was found is proven.
    most_repetend: N_R is not above it.
    solver: that searches the repetend.
    """

    effort: float = 1.0
    proves: bool = False
    most_repetend: int | None = None
    solver: Solver = Solver.CP_SAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Attributes:
    bound: no period is shorter.
    is_smallest: whether no N_R is smaller for this period.
    """

    kernel: Kernel
    bound: int
    is_smallest: bool

    @property
    def is_optimal(self) -> bool:
        return self.kernel.period <= self.bound


def search_kernel(problem: Problem, limits: Limits, *, should_stop: Callable[[], bool] = lambda: False) -> Found:
    """Searches a repetend.

    Raises:
        FailedPreconditionError: the memory admits none.
    """
    search = _Search(problem, limits, should_stop)
    answer = search.at(problem.lower_bound)
    if answer.kernel is not None:
        return search.shrunk(Found(kernel=answer.kernel, bound=problem.lower_bound, is_smallest=False))
    bound = problem.lower_bound + 1 if answer.is_proven else problem.lower_bound
    return search.shrunk(search.shortest(bound))


class _Search:
    def __init__(self, problem: Problem, limits: Limits, should_stop: Callable[[], bool]) -> None:
        self._problem, self._limits, self._should_stop = problem, limits, should_stop
        self._quick = Effort(units=0.00026 * problem.num_tasks**1.6 * limits.effort)
        self._long = Effort(units=(1.0 if limits.proves else 0.1) * limits.effort * (1 + problem.num_tasks / 10))

    def at(self, period: int, most: int | None = None, *, effort: Effort | None = None) -> Answer:
        """Looks for any repetend of a period."""
        wanted = most_repetend(self._problem, period) if most is None else most
        if self._limits.most_repetend is not None:
            wanted = min(wanted, self._limits.most_repetend)
        if wanted < least_repetend(self._problem, period):
            return Answer(kernel=None, is_proven=True)
        return find_kernel(self._problem, period=period, num_micro_batches=wanted, effort=effort or self._quick)

    def shortest(self, bound: int) -> Found:
        """Halves the range of periods, then lets the period be free for what is left."""
        best = self._sequential()
        low = bound
        while best.period - low > max(0, low // _CLOSE) and not self._should_stop():
            middle = (low + best.period) // 2
            answer = self.at(middle)
            if answer.kernel is not None:
                best = answer.kernel
                continue
            low = middle + 1
            bound = middle + 1 if answer.is_proven else bound
        if best.period > bound and not self._should_stop():
            best, bound = self._refined(best, bound)
        return Found(kernel=best, bound=bound, is_smallest=False)

    def shrunk(self, found: Found) -> Found:
        """Looks for a repetend of the same period over fewer micro-batches."""
        period, best = found.kernel.period, found.kernel
        low = least = least_repetend(self._problem, period)
        while best.num_micro_batches > low and not self._should_stop():
            middle = (low + best.num_micro_batches - 1) // 2
            answer = self.at(period, middle)
            if answer.kernel is not None:
                best = answer.kernel
            else:
                low = middle + 1
                least = low if answer.is_proven else least
        while self._limits.proves and best.num_micro_batches > least and not self._should_stop():
            answer = self.at(period, best.num_micro_batches - 1, effort=self._long)
            if answer.kernel is None:
                return replace(found, kernel=best, is_smallest=answer.is_proven)
            best = answer.kernel
        return replace(found, kernel=best, is_smallest=best.num_micro_batches <= least)

    def _refined(self, best: Kernel, bound: int) -> tuple[Kernel, int]:
        """With a free period, from the best so far."""
        most = most_repetend(self._problem, bound)
        if self._limits.most_repetend is not None:
            most = min(most, self._limits.most_repetend)
        answer = find_shortest(self._problem, most=best.period, num_micro_batches=most, effort=self._long, hint=best)
        if answer.kernel is not None and answer.kernel.period <= best.period:
            best = answer.kernel
        return best, max(bound, answer.bound)

    def _sequential(self) -> Kernel:
        """One micro-batch after the other: there is no repetend where the memory does not admit that.

        Period and all starts within it: what one micro-batch takes when all its tasks run one after the other."""
        total = sum(self._problem.times) + sum(lag for _, _, lag in self._problem.edges)
        answer = find_kernel(self._problem, period=total, num_micro_batches=1, effort=self._long)
        if answer.kernel is None:
            raise FailedPreconditionError(
                f"No schedule fits the memory of {self._culprits(total)}.",
                hint="Give devices more memory: not even one micro-batch at a time fits.",
            )
        return answer.kernel

    def _culprits(self, total: int) -> str:
        """The devices whose memory alone admits nothing."""
        names, capacities = [], self._problem.placement.capacities or ()
        for device, on in enumerate(self._problem.on):
            freed = {i: 0 for i in range(self._problem.num_tasks) if i not in on}
            memory = tuple(freed.get(i, each) for i, each in enumerate(self._problem.memory))
            alone = replace(self._problem, memory=memory)
            if find_kernel(alone, period=total, num_micro_batches=1, effort=self._long).kernel is None:
                names.append(f"device {device}, which is {capacities[device]:g}")
        return ", and of ".join(names) if names else "all devices together"
