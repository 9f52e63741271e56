"""Which sends of a rank are known to be over when something arrives: so that what was sent is kept no longer. Pure."""

from collections import Counter

from headway.core.execution.execution import Action, ActionKind, Execution


def settled_sends(execution: Execution, rank: int) -> dict[int, int]:
    """By the place of a RECV in a rank's list, how many of the rank's sends to that peer it may wait for without delay
    once this has arrived: those that the peer had made room for before it sent this. Lists need not fit together.
    """
    known: dict[int, list[int]] = {}
    found = {}
    taken: Counter[int] = Counter()
    for at, action in enumerate(execution.ranks[rank].actions):
        if action.kind is ActionKind.RECV and 0 <= action.peer < len(execution.ranks):
            if action.peer not in known:
                known[action.peer] = _received_before_sends(execution.ranks[action.peer].actions, rank)
            counts = known[action.peer]
            place = taken[action.peer]
            found[at] = counts[place] if place < len(counts) else 0
            taken[action.peer] += 1
    return found


def _received_before_sends(actions: tuple[Action, ...], rank: int) -> list[int]:
    """Of each send to a rank how much was to be received of it before."""
    found, count = [], 0
    for action in actions:
        if action.peer == rank and action.kind is ActionKind.RECV:
            count += 1
        elif action.peer == rank and action.kind is ActionKind.SEND:
            found.append(count)
    return found
