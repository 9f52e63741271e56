"""The op-level optimiser: the cheapest cover of a graph with measured kernels (Collage section 2.4.2, algorithm 1)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headway.core.backend import Backend
from headway.core.errors import FailedPreconditionError
from headway.planner.backends.network import Network, Operators


@dataclass(frozen=True, slots=True)
class Kernel:
    """Operators that a backend runs as one kernel.

    Attributes:
        seconds: by itself.
        switch_s: context switch, the epsilon of (2.2): what it takes more in a row of others.
    """

    operators: Operators
    backend: Backend
    seconds: float
    switch_s: float = 0.0

    @property
    def cost_s(self) -> float:
        return max(0.0, self.seconds + self.switch_s)


@dataclass(frozen=True, slots=True)
class Cover:
    """Kernels that run every operator of a graph once, in an order in which they can run, and their cost with what it
    takes to go from each to the next."""

    kernels: tuple[Kernel, ...]
    seconds: float


class _State(NamedTuple):
    """The best cover of some operators: its cost, its last kernel, and the cover before that."""

    seconds: float
    kernel: Kernel | None
    before: "_State | None"


def place(network: Network, kernels: Iterable[Kernel]) -> Cover:
    """The cheapest cover, by equations (2.3) and (2.4).

    Operators are visited in post-order, the frontier node with the lowest depth first. All readers of one are covered
    when it is visited, so that whatever covers it has it as its sink. A state is the set of the operators that are
    covered beyond that one, which makes subgraphs with the same future one state. On a chain that is one state;
    branches add as many as kernels reach past each other.

    Raises:
        FailedPreconditionError: there is no kernel for an operator; names it.
    """
    places = {at: number for number, at in enumerate(network.post_order)}
    by_sink = _by_sink(kernels, places)
    states: dict[int, _State] = {0: _State(0.0, None, None)}
    for number, at in enumerate(network.post_order):
        following: dict[int, _State] = {}
        for covered, state in states.items():
            if covered & 1:
                _keep(following, covered >> 1, state)
                continue
            for mask, kernel in by_sink[number]:
                if not covered & mask:
                    cost_s = state.seconds + kernel.cost_s
                    _keep(following, (covered | mask) >> 1, _State(cost_s, kernel, state))
        if not following:
            raise FailedPreconditionError(
                f"No backend runs {network.operator(at).name} ({network.operator(at).target}) in this place.",
                hint="Offer the backend 'eager', which runs anything.",
                field="backends",
            )
        states = following
    return _cover(states[0])


def cheapest(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Of each set of operators the backend that is fastest; of equal ones the first by name."""
    best: dict[Operators, Kernel] = {}
    for kernel in sorted(kernels, key=lambda each: (each.cost_s, str(each.backend))):
        best.setdefault(kernel.operators, kernel)
    return list(best.values())


def _by_sink(kernels: Iterable[Kernel], places: Mapping[int, int]) -> dict[int, list[tuple[int, Kernel]]]:
    """The fastest kernels, by the place of their sink; with each the places that it covers, counted from there."""
    found: dict[int, list[tuple[int, Kernel]]] = defaultdict(list)
    for kernel in cheapest(kernels):
        first = min(places[at] for at in kernel.operators)
        mask = 0
        for at in kernel.operators:
            mask |= 1 << (places[at] - first)
        found[first].append((mask, kernel))
    return found


def _keep(states: dict[int, _State], covered: int, state: _State) -> None:
    known = states.get(covered)
    if known is None or state.seconds < known.seconds:
        states[covered] = state


def _cover(last: _State) -> Cover:
    """The kernels were found from the last to the first, so that following the states gives them in order."""
    kernels: list[Kernel] = []
    state: _State | None = last
    while state is not None:
        if state.kernel is not None:
            kernels.append(state.kernel)
        state = state.before
    return Cover(tuple(kernels), last.seconds)
