"""Makes engines of kernels: neighbours on one graph library become one (Collage section 2.4.3)."""

from collections import defaultdict
from collections.abc import Sequence

from headway.core.backend import Backend
from headway.planner.backends.network import Network, Operators

Choice = tuple[Operators, Backend]
"""Operators, and the backend that runs them."""


def merged(network: Network, choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Joins choices of one backend, so that engines have no cycles; in an order in which they can run.

    Every choice gets a level: at least that of whatever it reads, and one more where another backend made that. What
    has the same backend and level is one engine. An edge between engines always leads to a higher level, and so there
    is no way back. To an operator library it is all one: it runs its kernels one after the other.

    Args:
        choices: a cover of the graph by sets without cycles among them, in an order in which they can run.
    """
    owner = {at: number for number, (operators, _) in enumerate(choices) for at in operators}
    levels: list[int] = []
    for operators, backend in choices:
        before = {owner[source] for at in operators for source in network.predecessors[at]} - {len(levels)}
        levels.append(max((_level_after(choices[each][1], levels[each], backend) for each in before), default=0))
    engines: dict[tuple[int, Backend], list[Operators]] = defaultdict(list)
    for level, (operators, backend) in zip(levels, choices, strict=True):
        engines[level, backend].append(operators)
    ordered = sorted(engines.items(), key=lambda item: (item[0][0], str(item[0][1])))
    return tuple((frozenset().union(*parts), backend) for (_, backend), parts in ordered)


def _level_after(source: Backend, level: int, backend: Backend) -> int:
    return level if source == backend else level + 1
