"""Local search in several processes: from the best so far each on its own way, and again from the best of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from headway.planner.placement.search.evaluator import Evaluator
from headway.planner.placement.search.local_search import local_search
from headway.planner.placement.search.problem import Groups, Problem
from headway.planner.placement.search.search_state import SearchState, evaluate

ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSearch:
    """One way: so many changes of some groups. What is found depends on nothing else."""

    groups: Groups
    moves: int
    seed: str


class SearchExecutor(Protocol):
    """Processes that search at once, here or on other machines.

    Attributes:
        size: number of ways that are tried at once.
    """

    size: int

    def run(
        self, problem: Problem, searches: Sequence[LocalSearch], should_stop: Callable[[], bool]
    ) -> list[Groups] | None:
        """Runs the searches and returns what each found, in their order; None where it was stopped before."""


def search_in_parallel(
    evaluator: Evaluator,
    starts: Sequence[Groups],
    *,
    moves: int,
    executor: SearchExecutor,
    seed: int,
    better: Callable[[SearchState], None],
    should_stop: Callable[[], bool],
) -> None:
    """Try so many changes in all. `better` hears of the best of each round; a round that is stopped is lost.

    Args:
        starts: taken in turns in the first round.
    """
    share = -(-moves // (ROUNDS * executor.size))
    for number in range(ROUNDS):
        searches = [
            LocalSearch(groups=starts[each % len(starts)], moves=share, seed=f"{seed}:{number}:{each}")
            for each in range(executor.size)
        ]
        found = None if should_stop() else executor.run(evaluator.problem, searches, should_stop)
        if found is None:
            return
        best = min((evaluate(evaluator, groups) for groups in found), key=lambda state: state.cost)
        better(best)
        starts = [best.groups]


def search_once(problem: Problem, task: LocalSearch) -> Groups:
    """Runs one local search, in a process of its own."""
    start = evaluate(Evaluator(problem), task.groups)
    return local_search(
        start, moves=task.moves, rng=Random(task.seed), better=lambda _: None, should_stop=lambda: False
    ).groups
