"""Local search in several processes: from the best so far each on its own way, and again from the best of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from headway.planner.placement.search.climb import climb
from headway.planner.placement.search.judge import Judge
from headway.planner.placement.search.problem import Groups, Problem
from headway.planner.placement.search.standing import Standing, stand

ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """One way: so many changes of some groups. What is found depends on nothing else."""

    groups: Groups
    moves: int
    seed: str


class Climbers(Protocol):
    """Processes that search at once, here or on other machines.

    Attributes:
        size: number of ways that are tried at once.
    """

    size: int

    def run(self, problem: Problem, climbs: Sequence[Climb], should_stop: Callable[[], bool]) -> list[Groups] | None:
        """What each found, in their order; None where it was stopped before."""


def climb_apart(
    judge: Judge,
    starts: Sequence[Groups],
    *,
    moves: int,
    climbers: Climbers,
    seed: int,
    better: Callable[[Standing], None],
    should_stop: Callable[[], bool],
) -> None:
    """Try so many changes in all. `better` hears of the best of each round; a round that is stopped is lost.

    Args:
        starts: taken in turns in the first round.
    """
    share = -(-moves // (ROUNDS * climbers.size))
    for number in range(ROUNDS):
        climbs = [
            Climb(groups=starts[each % len(starts)], moves=share, seed=f"{seed}:{number}:{each}")
            for each in range(climbers.size)
        ]
        found = None if should_stop() else climbers.run(judge.problem, climbs, should_stop)
        if found is None:
            return
        best = min((stand(judge, groups) for groups in found), key=lambda standing: standing.cost)
        better(best)
        starts = [best.groups]


def climb_once(problem: Problem, task: Climb) -> Groups:
    """In a process of its own."""
    start = stand(Judge(problem), task.groups)
    return climb(
        start, moves=task.moves, rng=Random(task.seed), better=lambda _: None, should_stop=lambda: False
    ).groups
