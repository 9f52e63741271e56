"""The precision that a model is trained or served in: the dtype of its numbers, and what training keeps beside them.
Pure."""

from dataclasses import replace
from enum import StrEnum

from headway.core.graph import Graph, Operator, dtype_bytes

_CAST = "float32"
_IN_FLOAT32 = (
    "aten._log_softmax.default",
    "aten.nll_loss_forward.default",
    "aten.nll_loss_backward.default",
    "aten._log_softmax_backward_data.default",
)
"""What they make stays in float32, as with torch.autocast."""


class Precision(StrEnum):
    """Numbers of 16 bits have float32 masters, and gradients are summed in float32 over micro-batches, as Megatron and
    torchtitan do. Bytes are for each number of a parameter."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def weight_bytes(self) -> int:
        """Of what the operators read."""
        return dtype_bytes(self.value)

    @property
    def gradient_bytes(self) -> int:
        """Of the sum over micro-batches."""
        return dtype_bytes(Precision.FLOAT32)

    @property
    def optimizer_bytes(self) -> int:
        """Of Adam's two moments in float32, and of the master where there is one."""
        masters = 0 if self is Precision.FLOAT32 else 1
        return (2 + masters) * dtype_bytes(Precision.FLOAT32)


def cast_graph(graph: Graph, precision: Precision) -> Graph:
    """Returns a graph that was captured in float32 as if its numbers were of that precision, but for those of losses.

    FLOPs stay. Tensors of other dtypes, such as ids, stay as they are.
    """
    if precision is Precision.FLOAT32:
        return graph
    kept = {name for operator in graph.operators if operator.target in _IN_FLOAT32 for name in operator.outputs}
    num_bytes = {tensor.name: tensor.num_bytes for tensor in graph.tensors}
    cast = {tensor.name for tensor in graph.tensors if tensor.dtype == _CAST and tensor.name not in kept}
    shrinking = dtype_bytes(_CAST) // precision.weight_bytes

    def moved(total: int, names: tuple[str, ...]) -> int:
        """What belongs to the tensors that are cast shrinks."""
        fixed = min(total, sum(num_bytes[name] for name in names if name not in cast))
        return fixed + (total - fixed) // shrinking

    def operator(given: Operator) -> Operator:
        if cast.isdisjoint((*given.inputs, *given.outputs)):
            return given
        read, written = moved(given.bytes_read, given.inputs), moved(given.bytes_written, given.outputs)
        return replace(given, bytes_read=read, bytes_written=written)

    return replace(
        graph,
        tensors=tuple(replace(t, dtype=precision.value) if t.name in cast else t for t in graph.tensors),
        operators=tuple(map(operator, graph.operators)),
    )
