"""Operators that read or write where an index says."""

from collections.abc import Sequence
from math import prod

from headway.core.graph import OperatorKind
from headway.core.iteration import Reduction
from headway.profiler.capture.call import Call, OperatorCost, axes, leading
from headway.profiler.capture.space import Labels, Operand, iteration_space
from headway.profiler.capture.view import View

# A rank that has a part of the table gives zeros for ids of the others.
_FOUND = {"v": Reduction.SUM}
_READING = ("gather", "index", "index_select")


def embedding(call: Call) -> OperatorCost:
    """The cost of an embedding: the product of one-hot rows with the table. `v` is reduced, though only the rows found
    are read."""
    table, indices, output = call.view(0), call.view(1), call.output
    tokens = axes(indices)
    if len(output.shape) != len(tokens) + 1:  # bags: rows of a bag are added
        space = iteration_space(
            [Operand(table, ("v", "d")), *(Operand(view, ("",) * len(view.shape)) for view in call.tensors[1:])],
            [Operand(output, ("n", "d"), _FOUND)],
        )
    else:
        space = iteration_space(
            [Operand(table, ("v", "d")), Operand(indices, tokens)], [Operand(output, (*tokens, "d"), _FOUND)]
        )
    rows = prod(indices.shape) * table.shape[1]
    return OperatorCost(
        kind=OperatorKind.EMBEDDING, space=space, read_elements={table.base: min(rows, table.num_distinct)}
    )


def embedding_backward(call: Call) -> OperatorCost:
    """The cost of adding each token's gradient to the row that the token was read from."""
    gradient, indices, output = call.view(0), call.view(1), call.output
    tokens = axes(indices) if len(gradient.shape) == len(indices.shape) + 1 else ("n",)
    reads = [Operand(gradient, (*tokens, "d"))]
    reads += [
        Operand(v, tokens if v.shape == indices.shape == gradient.shape[:-1] else ("",) * len(v.shape))
        for v in call.tensors[1:]
    ]
    space = iteration_space(reads, [Operand(output, ("v", "d"), dict.fromkeys(tokens, Reduction.SUM))])
    return OperatorCost(kind=OperatorKind.EMBEDDING, space=space)


def elements_along(call: Call) -> OperatorCost:
    """The cost of `gather` and `scatter`: an index for each element, which says where along a dim it is read or
    written."""
    table, index = call.view(0), call.view(2)
    loops = axes(index)
    others = [Operand(view, loops) for view in call.tensors[1:] if len(view.shape) == len(loops)]
    return _indexed(call, Operand(table, _without(table, index, _dim(call))), others, Operand(index, loops))


def rows_along(call: Call) -> OperatorCost:
    """The cost of `index_select` and `index_add`: an index for each row, which says where along a dim it is read or
    written."""
    table, index = call.view(0), call.view(2)
    rows = call.view(3) if len(call.tensors) > 2 else call.output
    loops, dim = axes(rows), _dim(call)
    others = [Operand(index, loops[dim : dim + len(index.shape)])]
    others += [Operand(rows, loops)] if len(call.tensors) > 2 else []
    return _indexed(call, Operand(table, _without(table, rows, dim)), others, Operand(rows, loops))


def by_indices(call: Call) -> OperatorCost:
    """The cost of `index` and `index_put`: indices of some dims, whose own dims stand in the place of these."""
    table, indices = call.view(0), call.arguments[1]
    values = call.view(2) if "put" in call.name else call.output
    loops = axes(values)
    found = [dim for dim, index in enumerate(indices) if isinstance(index, View)]
    views = [indices[dim] for dim in found]
    rank = max(len(view.shape) for view in views)
    is_block = found == list(range(found[0], found[-1] + 1)) and len(loops) == len(table.shape) - len(found) + rank
    start = found[0] if is_block else 0
    block = loops[start : start + rank]
    kept = iter((*loops[:start], *loops[start + rank :]))
    labels = tuple("" if dim in found or not is_block else next(kept) for dim in range(len(table.shape)))
    others = [
        Operand(view, _broadcast(view, block, values.shape[start:]) if is_block else _unknown(view)) for view in views
    ]
    others += [Operand(values, loops)] if "put" in call.name else []
    return _indexed(call, Operand(table, labels), others, Operand(values, loops))


def part_of(call: Call) -> OperatorCost:
    """The cost of putting one index or a slice of a dim where the rest is zeros or another tensor."""
    output, is_gradient = call.output, call.name.endswith("_backward")
    part, dim = call.view(0 if is_gradient else 1), int(call.arguments[2]) % len(call.output.shape)
    loops = axes(output)
    hole = ("",) if len(part.shape) == len(loops) else ()
    reads = [Operand(part, (*loops[:dim], *hole, *loops[dim + 1 :]))]
    reads = reads if is_gradient else [Operand(call.view(0), loops), *reads]
    return OperatorCost(kind=OperatorKind.SCATTER, space=iteration_space(reads, [Operand(output, loops)]))


def scatter(call: Call) -> OperatorCost:
    """The cost of writing where a mask or an index says, on top of what is there."""
    output = call.output
    reads = [Operand(v, axes(v) if v.shape == output.shape else _unknown(v)) for v in call.tensors]
    return OperatorCost(kind=OperatorKind.SCATTER, space=iteration_space(reads, [Operand(output, _unknown(output))]))


def _indexed(call: Call, table: Operand, others: list[Operand], values: Operand) -> OperatorCost:
    """The cost of reading values from a table, or of writing them into it where the result has the table's shape."""
    output = call.output
    if call.name in _READING:
        space = iteration_space([table, *others], [Operand(output, values.labels)])
        read = min(prod(output.shape), table.view.num_distinct)
        return OperatorCost(kind=OperatorKind.GATHER, space=space, read_elements={table.view.base: read})
    space = iteration_space([table, *others], [Operand(output, table.labels)])
    return OperatorCost(kind=OperatorKind.SCATTER, space=space)


def _without(table: View, values: View, dim: int) -> Labels:
    """Labels a table as the values that are read from it or written into it, but for the dim that the index is for."""
    return tuple("" if at == dim else label for at, label in enumerate(leading(table, values)))


def _dim(call: Call) -> int:
    return int(call.arguments[1]) % max(len(call.view(0).shape), 1)


def _broadcast(index: View, block: Labels, sizes: Sequence[int]) -> Labels:
    """Labels an index that is broadcast with others to a block of loops."""
    offset = len(block) - len(index.shape)
    return tuple(block[at + offset] if size == sizes[at + offset] else "" for at, size in enumerate(index.shape))


def _unknown(view: View) -> Labels:
    return ("",) * len(view.shape)
