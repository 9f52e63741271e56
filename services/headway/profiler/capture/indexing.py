"""Operators that read or write where an index says."""

from math import prod

from headway.core.graph import OperatorKind
from headway.core.iteration import Reduction
from headway.profiler.capture.call import Call, OperatorCost, aligned, axes, leading
from headway.profiler.capture.space import Operand, iteration_space

# A rank that has a part of the table gives zeros for ids of the others.
_FOUND = {"v": Reduction.SUM}


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


def gather(call: Call) -> OperatorCost:
    """The cost of reading where an index says: as many elements as are written."""
    source, output = call.tensors[0], call.output
    same = len(source.shape) == len(output.shape)
    labels = tuple(
        f"d{dim}" if same and source.shape[dim] == output.shape[dim] else "" for dim in range(len(source.shape))
    )
    if not same:  # an index took the leading dims
        labels = tuple(aligned(source, output)[dim] if dim > 0 else "" for dim in range(len(source.shape)))
    others = [
        Operand(v, aligned(v, output) if len(v.shape) <= len(output.shape) else ("",) * len(v.shape))
        for v in call.tensors[1:]
    ]
    space = iteration_space([Operand(source, labels), *others], [Operand(output, axes(output))])
    read = min(prod(output.shape), source.num_distinct)
    return OperatorCost(kind=OperatorKind.GATHER, space=space, read_elements={source.base: read})


def scatter(call: Call) -> OperatorCost:
    """The cost of writing where an index says, on top of what is there."""
    output = call.output
    values = max(call.tensors[1:], key=lambda view: view.num_distinct, default=output)
    space = iteration_space(
        [Operand(v, axes(v) if v is values else ("",) * len(v.shape)) for v in call.tensors],
        [
            Operand(
                output,
                leading(output, values) if len(output.shape) == len(values.shape) else ("",) * len(output.shape),
            )
        ],
    )
    return OperatorCost(kind=OperatorKind.SCATTER, space=space)
