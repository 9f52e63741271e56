"""Local search: random small changes, of which the better are kept."""

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
    rng: Random,
    better: Callable[[SearchState], None],
    should_stop: Callable[[], bool],
) -> SearchState:
    """Tries so many changes; `better` is called with each that was kept."""
    state, in_vain = start, 0
    kinds = [move for move, _ in MOVES]
    shares = [share for _, share in MOVES]
    for _ in range(moves):
        if should_stop() or in_vain > PATIENCE * moves:
            break
        change = rng.choices(kinds, weights=shares)[0](state, rng)
        after = state.after(change) if change else None
        in_vain += 1
        if after is not None:
            state, in_vain = after, 0
            better(state)
    return state
