"""The choice of shardings in one layer as nodes, their options and edges between them (dissertation section 3.4.2).
Pure.

Nodes are forward operators that compute much; all others follow one that they read, as do all backward ones: the
gradient of a tensor lies as the tensor does, so that the best split of a backward operator is a matter of its own. What
enters a layer and what leaves it are nodes too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.sharding_spec import ShardingSpec
from headway.planner.intra.quantities import Floats
from headway.planner.intra.strategies import Strategy


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """One choice.

    Attributes:
        name: of its operator, or 'entering' and 'leaving'.
        quantities: [quantities, options].
        parameters: for each parameter that it owns, by name: [ZeRO stages, quantities, options].
        kept_bytes: [options]; of a node that enters: its tensors, which recomputing has to keep.
    """

    name: str
    quantities: Floats
    parameters: dict[str, Floats] = field(default_factory=dict)
    kept_bytes: Floats | None = None

    @property
    def num_options(self) -> int:
        return int(self.quantities.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerProblem:
    """Attributes:
    edges: by the numbers of two nodes, the smaller one first: [forward and backward seconds, options, options].
    entering, leaving: nodes; None where nothing enters or leaves.
    strategies: of each operator, by name: its node, and its strategy in each option of the node; the node is None for
        what every device does alike.
    specs: the same of each tensor: how it lies.
    """

    mesh_shape: tuple[int, ...]
    nodes: list[Node]
    edges: dict[tuple[int, int], Floats]
    entering: int | None
    leaving: int | None
    strategies: dict[str, tuple[int | None, Sequence[Strategy]]]
    specs: dict[str, tuple[int | None, Sequence[ShardingSpec]]]
