"""What the loops of operators run along: examples, tokens of them, experts, or anything else. Pure."""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

from headway.core.batch_dims import BatchDims
from headway.core.errors import FailedPreconditionError
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec


class LoopRole(StrEnum):
    """What devices share where they split a loop; the values are the usual names of that parallelism."""

    DATA = "data"  # the examples of a micro-batch
    CONTEXT = "context"  # the tokens of each example
    EXPERT = "expert"  # the experts of a layer
    MODEL = "model"  # anything else: heads, channels, what is summed


Roles = Mapping[str, LoopRole]
"""Of an operator's loops; those that are not named are `LoopRole.MODEL`."""


def loop_roles(graph: Graph, examples: BatchDims, primals: Mapping[str, str]) -> Mapping[str, Roles]:
    """The roles of the loops of each operator, by its name.

    Args:
        examples: where they are in the graph.
        primals: of each gradient the tensor that it is the gradient of.
    """
    tokens = _token_loops(graph)
    weights = _weights(graph, primals)
    return {
        operator.name: dict.fromkeys(_expert_loops(operator, weights), LoopRole.EXPERT)
        | dict.fromkeys(along_tokens, LoopRole.CONTEXT)
        | dict.fromkeys(along_examples, LoopRole.DATA)
        for operator, along_tokens, along_examples in zip(graph.operators, tokens, examples.loops, strict=True)
    }


def _token_loops(graph: Graph) -> list[Collection[str]]:
    """None of a model whose inputs are no sequences of token ids."""
    nothing: list[Collection[str]] = [()] * len(graph.operators)
    if not any(_is_ids(tensor, graph.batch) for tensor in graph.tensors):
        return nothing
    try:
        return list(BatchDims(graph, along=1).loops)
    except FailedPreconditionError:  # several inputs of different lengths
        return nothing


def _is_ids(tensor: TensorSpec, batch: int) -> bool:
    return (
        tensor.role is TensorRole.INPUT
        and len(tensor.shape) == 2
        and tensor.shape[0] == batch
        and tensor.dtype.startswith("int")
    )


def _weights(graph: Graph, primals: Mapping[str, str]) -> set[str]:
    """Parameters and their gradients."""
    parameters = {tensor.name for tensor in graph.tensors if tensor.role is TensorRole.PARAMETER}
    return parameters | {gradient for gradient, primal in primals.items() if primal in parameters}


def _expert_loops(operator: Operator, weights: Collection[str]) -> Iterator[str]:
    """Loops of a batch of products, each with weights of its own, that index all its operands."""
    if operator.kind is not OperatorKind.BATCHED_MATMUL or operator.space is None:
        return
    accesses = (*operator.space.reads, *operator.space.writes)
    if any(access.tensor in weights for access in accesses):
        for dim in operator.space.dims:
            if all(dim.name in access.loops for access in accesses):
                yield dim.name
