"""Candidates of a search that are tried at once: what a search for one number of micro-batches finds, in processes here
or on other machines. Pure but for the executor."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from headway.core.cost.costs import Costs
from headway.planner.training.problem import TrainingProblem

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What all candidates of a search share.

    Attributes:
        costs: of each group of nodes.
    """

    problem: TrainingProblem
    costs: Sequence[Costs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Generic[R_co]):
    """What was found for one number of micro-batches, and the processor time that it took."""

    found: R_co
    cpu_s: float


Task = Callable[[Candidates, int], Tried[R]]


class CandidateExecutor(Protocol):
    """Tries candidates at once, in processes here or on other machines.

    Attributes:
        size: number of candidates at once.
    """

    size: int

    def map(
        self, task: Task[R], shared: Candidates, items: Sequence[int], should_stop: Callable[[], bool]
    ) -> Iterator[Tried[R]]:
        """Begins all, and yields what each finds, in order; ends early where it is stopped."""


@dataclass(slots=True, kw_only=True)
class Ahead(Generic[R]):
    """Answers a search that asks for one number of micro-batches after the other, and tries those that it may ask for
    next meanwhile. What it answers is what one process would.

    Attributes:
        task: a function of a module, as other processes call it.
        numbers: that may be asked for, ascending.
        cpu_s: of the candidates that were asked for, in other processes.
    """

    task: Task[R]
    shared: Candidates
    numbers: Sequence[int]
    executor: CandidateExecutor
    should_stop: Callable[[], bool]
    cpu_s: float = 0.0
    _begun: list[int] = field(default_factory=list)
    _results: Iterator[Tried[R]] = field(default_factory=lambda: iter(()))
    _known: dict[int, R] = field(default_factory=dict)

    def __call__(self, number: int) -> R | None:
        """What was found; None where it was stopped before."""
        if number not in self._known and number not in self._begun:
            self._begun = self._next(number)
            self._results = self.executor.map(self.task, self.shared, tuple(self._begun), self.should_stop)
        while number not in self._known:
            tried = next(self._results, None)
            if tried is None:
                return None
            self._known[self._begun.pop(0)] = tried.found
            self.cpu_s += tried.cpu_s
        return self._known[number]

    def _next(self, number: int) -> list[int]:
        """That number, and as many beside it as can be tried at once: the nearest that are not known."""
        at = self.numbers.index(number)
        order = sorted(self.numbers, key=lambda each: (abs(self.numbers.index(each) - at), -each))
        return [each for each in order if each not in self._known][: self.executor.size]


def timed(find: Callable[[], R]) -> Tried[R]:
    """What a function finds, with its processor time."""
    began_s = time.process_time()
    found = find()
    return Tried(found=found, cpu_s=time.process_time() - began_s)
