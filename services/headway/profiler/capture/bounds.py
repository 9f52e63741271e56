"""Lists the arguments of operators that are indices, and what they index."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from torch import fx

PASSING = frozenset({"clone", "_to_copy", "copy", "expand", "repeat", "cat"})
"""Operators whose integers are those of their first argument."""

_ALONG_A_DIM = frozenset(
    {"gather", "scatter", "scatter_add", "scatter_reduce", "take_along_dim"}
    | {"index_select", "index_add", "index_copy", "index_fill"}
)
_OF_POOLED = {"max_pool2d_with_indices_backward": 2, "max_pool3d_with_indices_backward": 3}


def index_bounds(name: str, arguments: Sequence[Any]) -> Iterator[tuple[fx.Node, int]]:
    """The indices among an operator's arguments, and how many each has to choose from.

    Args:
        name: of the operator, without overload.
    """
    match name, arguments:
        case (("embedding" | "_embedding_bag" | "_embedding_bag_forward_only"), (fx.Node() as table, index, *_)):
            yield index, _shape(table)[0]
        case "embedding_dense_backward", (_, index, int(num_rows), *_):
            yield index, num_rows
        case (("index" | "_unsafe_index" | "index_put" | "_unsafe_index_put"), (fx.Node() as table, indices, *_)):
            for dim, index in enumerate(indices):
                if isinstance(index, fx.Node):
                    yield index, _shape(table)[dim]
        case (("nll_loss_forward" | "nll_loss2d_forward"), (fx.Node() as scores, index, *_)):
            yield index, _num_classes(scores)
        case (("nll_loss_backward" | "nll_loss2d_backward"), (_, fx.Node() as scores, index, *_)):
            yield index, _num_classes(scores)
        case _, (fx.Node() as table, int(dim), fx.Node() as index, *_) if name in _ALONG_A_DIM:
            yield index, _shape(table)[dim] if _shape(table) else 1
        case _, (_, fx.Node() as pooled, *_, fx.Node() as index) if name in _OF_POOLED:
            yield index, prod(_shape(pooled)[-_OF_POOLED[name] :])


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(map(int, node.meta["val"].shape))


def _num_classes(scores: fx.Node) -> int:
    shape = _shape(scores)
    return shape[1] if len(shape) > 1 else shape[0]
