"""Local search: random small changes, of which the better are kept, and at first some that are a little worse."""

from collections.abc import Callable
from random import Random

from headway.planner.placement.search.moves import MOVES
from headway.planner.placement.search.search_state import SearchState

PATIENCE = 0.3
"""It ends early after so large a share of its changes in vain."""


def local_search(
    start: SearchState,
    *,
    moves: int,
    temperature: float,
    rng: Random,
    better: Callable[[SearchState], None],
    should_stop: Callable[[], bool],
) -> SearchState:
    """Try so many changes, and return the best; `better` hears of each that is.

    A change may cost up to a threshold, so that the search leaves placements that no single change betters: a random
    one, exponentially distributed, whose mean falls to zero (simulated annealing).

    Args:
        temperature: mean of the thresholds at first, as a share of the requests; 0 to keep only what is better.
    """
    state, best, in_vain = start, start, 0
    kinds = [move for move, _ in MOVES]
    shares = [share for _, share in MOVES]
    hottest = temperature * len(start.evaluator.problem.workload)
    for number in range(moves):
        if should_stop() or in_vain > PATIENCE * moves:
            break
        change = rng.choices(kinds, weights=shares)[0](state, rng)
        tolerance = hottest * (1 - number / moves) ** 2 * rng.expovariate(1.0)
        after = state.after(change, tolerance=tolerance) if change else None
        in_vain += 1
        if after is None:
            continue
        state, in_vain = after, 0
        if state.cost < best.cost:
            best = state
            better(best)
    return best
