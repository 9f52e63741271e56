"""A language model of equal blocks, as torchtitan and Megatron-LM know one, found in a captured graph. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from headway.core.errors import FailedPreconditionError
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole
from headway.core.iteration import loops_of

_BLOCK = re.compile(r"^((?:.*?\.)?)(\d+)(?=\.|$)")
_GATED = ("silu",)
_LAYER_NORM = "layer_norm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Sizes of a decoder, and where its blocks are.

    Attributes:
        num_layers: its blocks.
        inner: width of a block's MLP.
        num_positions: rows of the table of learnt positions; 0 where there is none.
        is_gated: whether the MLP multiplies by a gate, as SwiGLU does.
        has_layer_norm: else RMS norms.
        has_bias: whether the products of its blocks add one.
        is_tied: whether the last product reads the table of tokens.
    """

    num_layers: int
    hidden: int
    inner: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int
    seq: int
    num_positions: int
    is_gated: bool
    has_layer_norm: bool
    has_bias: bool
    is_tied: bool


def block_of(operator: Operator) -> int | None:
    """The number of the block that an operator belongs to; None for those before and behind all blocks."""
    found = _BLOCK.match(operator.module)
    return int(found.group(2)) if found else None


def read_decoder(graph: Graph, target: str) -> Decoder:
    """Finds the sizes.

    Args:
        target: the tool that wants such a model, for the message.

    Raises:
        FailedPreconditionError: it is not such a model.
    """
    tensors = graph.tensors_by_name()
    forward = [operator for operator in graph.operators if not operator.is_backward]
    blocks = {number for operator in forward if (number := block_of(operator)) is not None}
    tables = [
        tensors[operator.inputs[0]]
        for operator in forward
        if operator.kind is OperatorKind.EMBEDDING and block_of(operator) is None
    ]
    attention = [operator for operator in forward if operator.kind is OperatorKind.ATTENTION]
    if why := _why_none(graph, forward, attention, has_table=bool(tables)):
        raise FailedPreconditionError(
            f"{target} trains decoders of language models, and '{graph.name}' is none: it has {why}.",
            hint="Export it with dtensor.",
        )
    heads, kv_heads = _heads(attention[0], tensors[attention[0].outputs[0]].shape)
    tokens = max(tables, key=lambda table: table.shape[0])
    products = _products(graph, [operator for operator in forward if block_of(operator) == min(blocks)])
    parameters = [tensor.name for tensor in graph.tensors if tensor.role is TensorRole.PARAMETER]
    targets = [operator.target for operator in forward]
    inputs = [tensor for tensor in graph.tensors if tensor.role is TensorRole.INPUT and len(tensor.shape) > 1]
    return Decoder(
        num_layers=len(blocks),
        hidden=tokens.shape[-1],
        inner=max(max(tensors[name].shape) for name in products if tokens.shape[-1] in tensors[name].shape),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=tensors[attention[0].outputs[0]].shape[-1],
        vocabulary=tokens.shape[0],
        seq=inputs[0].shape[1],
        num_positions=next((table.shape[0] for table in tables if table is not tokens), 0),
        is_gated=any(name in each for name in _GATED for each in targets),
        has_layer_norm=any(_LAYER_NORM in each for each in targets),
        has_bias=any(name.endswith(".bias") and _BLOCK.match(name) for name in parameters if name not in products),
        is_tied=any(tokens.name in operator.inputs for operator in forward if operator.kind is OperatorKind.MATMUL),
    )


def _why_none(graph: Graph, forward: Sequence[Operator], attention: Sequence[Operator], *, has_table: bool) -> str:
    lists = sorted({found.group(1) for operator in forward if (found := _BLOCK.match(operator.module))})
    if not lists:
        return "no repeated blocks"
    if len(lists) > 1:
        return f"blocks in {', '.join(name.removesuffix('.') for name in lists)}"
    if not has_table:
        return "no table of tokens"
    if any(tensor.role is TensorRole.PARAMETER and len(tensor.shape) > 2 for tensor in graph.tensors):
        return "a mixture of experts"
    if not attention:
        return "no attention"
    return "" if all(_is_causal(each) for each in attention) else "attention to later tokens"


def _is_causal(attention: Operator) -> bool:
    return attention.attributes.get("is_causal") == "True"


def _heads(attention: Operator, shape: Sequence[int]) -> tuple[int, int]:
    """Heads of the queries, and of the keys and values."""
    space = attention.space
    assert space is not None, "capture knows attention's loops"
    sizes = {dim.name: dim.size for dim in space.dims}
    shared = space.reads[1].loops.intersection(loops_of(space.writes[0].dims[1]))
    return shape[1], prod(sizes[loop] for loop in shared)


def _products(graph: Graph, operators: Iterable[Operator]) -> set[str]:
    """The matrices of products."""
    tensors = graph.tensors_by_name()
    return {
        name
        for operator in operators
        if operator.kind is OperatorKind.MATMUL
        for name in operator.inputs
        if tensors[name].role is TensorRole.PARAMETER and len(tensors[name].shape) > 1
    }
