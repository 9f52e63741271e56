"""Runs local searches in several processes: each from the best so far, and again from the best of them."""

from collections.abc import Callable, Iterator, Sequence
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
    """One local search: so many changes, from some groups on. Its result depends on nothing else."""

    groups: Groups
    moves: int
    temperature: float
    seed: str


class SearchExecutor(Protocol):
    """Runs local searches at once, in processes here or on other machines.

    Attributes:
        size: number of local searches at once.
    """

    size: int

    def map(
        self,
        task: Callable[[Problem, LocalSearch], Groups],
        shared: Problem,
        items: Sequence[LocalSearch],
        should_stop: Callable[[], bool],
    ) -> Iterator[Groups]:
        """Begins all searches, and yields the groups that each finds, in order; ends early where it is stopped."""


def search_in_parallel(
    evaluator: Evaluator,
    starts: Sequence[Groups],
    *,
    moves: int,
    temperature: float,
    executor: SearchExecutor,
    seed: int,
    better: Callable[[SearchState], None],
    should_stop: Callable[[], bool],
) -> None:
    """Tries so many changes in all. `better` is called with the best of each round; a round that is stopped is lost.

    Args:
        starts: taken in turns in the first round.
    """
    share = -(-moves // (ROUNDS * executor.size))
    for number in range(ROUNDS):
        searches = [
            LocalSearch(
                groups=starts[each % len(starts)],
                moves=share,
                temperature=temperature / (number + 1) ** 2,
                seed=f"{seed}:{number}:{each}",
            )
            for each in range(executor.size)
        ]
        found = list(executor.map(search_once, evaluator.problem, searches, should_stop))
        if len(found) < len(searches):
            return
        best = min((evaluate(evaluator, groups) for groups in found), key=lambda state: state.cost)
        better(best)
        starts = [best.groups]


def search_once(problem: Problem, task: LocalSearch) -> Groups:
    """Runs one local search; called in a process of its own."""
    start = evaluate(Evaluator(problem), task.groups)
    return local_search(
        start,
        moves=task.moves,
        temperature=task.temperature,
        rng=Random(task.seed),
        better=lambda _: None,
        should_stop=lambda: False,
    ).groups
