"""The cheapest shardings of one layer, for all that can enter and leave it (dissertation section 3.4.2). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import FailedPreconditionError
from headway.planner.intra.elimination import Eliminated, eliminate
from headway.planner.intra.layer_problem import LayerProblem, Node
from headway.planner.intra.problem import Edge
from headway.planner.intra.pruning import cheapest, restricted, undominated
from headway.planner.intra.quantities import Floats, Prices, Quantity

Indices = NDArray[np.intp]

_MOST_OPTIONS = (64, 32, 16, 8, 4, 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerTable:
    """Attributes:
    objective: [entering options, leaving options, prices].
    quantities: [quantities, entering options, leaving options, prices]; of the cheapest choice.
    options: of each node, [entering options, leaving options, prices].
    zero_stages: of each parameter, in each option of its node: [options, prices].
    """

    objective: Floats
    quantities: Floats
    options: Sequence[Indices]
    zero_stages: dict[str, Indices]


def make_table(problem: LayerProblem, prices: Prices, *, recomputes: bool) -> LayerTable:
    """Finds the cheapest choice for every pair of what enters and what leaves, at every price.

    Args:
        recomputes: whether the layer keeps only what enters it, and computes its forward pass again.

    Raises:
        FailedPreconditionError: the layer is too wide for tables.
    """
    zero_stages: dict[str, Indices] = {}
    nodes = [_priced(node, prices, zero_stages, recomputes=recomputes) for node in problem.nodes]
    edges = {key: _recomputed(seconds) if recomputes else seconds for key, seconds in problem.edges.items()}
    keep = [node for node in (problem.entering, problem.leaving) if node is not None]
    found = _eliminated(
        [_objective(quantities, prices) for quantities in nodes],
        [Edge(source=a, target=b, cost_s=seconds.sum(axis=0)) for (a, b), seconds in edges.items()],
        keep,
    )
    shape = _ends(problem, found.cost_s.shape)
    options = [found.strategies[n].reshape(shape) for n in range(len(nodes))]
    return LayerTable(
        objective=found.cost_s.reshape(shape),
        quantities=_total(nodes, edges, options),
        options=options,
        zero_stages=zero_stages,
    )


def table_of(
    problem: LayerProblem, options: Sequence[int], zero_stages: Mapping[str, int], *, recomputes: bool
) -> LayerTable:
    """The table of one choice: an option of each node and a ZeRO stage of each parameter."""
    total = np.zeros(len(Quantity))
    for node, option in zip(problem.nodes, options, strict=True):
        own = node.quantities[:, option].copy()
        if recomputes:
            own = _recomputed(own)
            own[Quantity.ACTIVATION_BYTES] = 0 if node.kept_bytes is None else node.kept_bytes[option]
        total += own
        for name, stages in node.parameters.items():
            total += stages[zero_stages[name], :, option]
    for (a, b), seconds in problem.edges.items():
        own = seconds[:, options[a], options[b]]
        total[: len(own)] += _recomputed(own) if recomputes else own
    return LayerTable(
        objective=np.zeros((1, 1, 1)),
        quantities=total[:, None, None, None],
        options=[np.full((1, 1, 1), option) for option in options],
        zero_stages={
            name: np.full((node.num_options, 1), zero_stages[name])
            for node in problem.nodes
            for name in node.parameters
        },
    )


def _eliminated(costs: Sequence[Floats], edges: Sequence[Edge], keep: Sequence[int]) -> Eliminated:
    """The cheapest choices; where the layer is too wide for tables among the options that are not dominated, and where
    it still is among the cheapest of these."""
    found = eliminate(costs, edges, keep=keep)
    if found is not None:
        return found
    left = undominated(costs, edges, keep=keep)
    for most in _MOST_OPTIONS:
        options = cheapest(costs, edges, left, most=most, keep=keep)
        priced = [cost_s[which] for cost_s, which in zip(costs, options, strict=True)]
        found = eliminate(priced, restricted(edges, options), keep=keep)
        if found is not None:
            strategies = {node: options[node][chosen] for node, chosen in found.strategies.items()}
            return Eliminated(cost_s=found.cost_s, strategies=strategies)
    raise FailedPreconditionError(
        "A layer has too many operators that depend on each other.",
        hint="Cut the model into more layers: --layers.",
    )


def _priced(node: Node, prices: Prices, zero_stages: dict[str, Indices], *, recomputes: bool) -> Floats:
    """The quantities of a node, [quantities, options, prices], with the cheapest ZeRO stage of each parameter."""
    base = node.quantities
    if recomputes:
        base = _recomputed(base)
        base[Quantity.ACTIVATION_BYTES] = 0 if node.kept_bytes is None else node.kept_bytes
    total = np.repeat(base[:, :, None], prices.size, axis=2)
    for name, stages in node.parameters.items():
        is_allowed = np.arange(len(stages))[:, None, None] >= prices.least_zero_stages
        objective = np.where(is_allowed, np.stack([prices.objective(stage) for stage in stages]), np.inf)
        best = objective.argmin(axis=0)  # [options, prices]
        zero_stages[name] = best
        total += np.take_along_axis(stages[..., None], best[None, None], axis=0)[0]
    return total


def _recomputed(seconds: Floats) -> Floats:
    """The same with the forward pass computed again before the backward one."""
    again = seconds.copy()
    again[Quantity.BACKWARD_S] += seconds[Quantity.FORWARD_S]
    return again


def _objective(quantities: Floats, prices: Prices) -> Floats:
    """[options, prices] of [quantities, options, prices]."""
    objective: Floats = np.einsum("qkp,pq->kp", quantities, prices.weights)
    return objective


def _ends(problem: LayerProblem, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The shape of a table that has both ends, where one that is missing has one option."""
    sizes = iter(shape[:-1])
    entering = 1 if problem.entering is None else next(sizes)
    leaving = 1 if problem.leaving is None else next(sizes)
    return entering, leaving, shape[-1]


def _total(nodes: Sequence[Floats], edges: dict[tuple[int, int], Floats], options: Sequence[Indices]) -> Floats:
    shape = options[0].shape
    at = np.arange(shape[-1])
    total = np.zeros((len(Quantity), *shape))
    for quantities, chosen in zip(nodes, options, strict=True):
        total += quantities[:, chosen, at]
    for (a, b), seconds in edges.items():
        total[: len(seconds)] += seconds[:, options[a], options[b]]
    return total
