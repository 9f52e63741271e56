"""A captured step of a causal language model for a slice of each sequence's tokens (TeraPipe, dissertation chapter 2).
Pure.

All but attention computes token by token. Attention of i tokens after j others needs their keys and values too: it has
i (2 j + i) pairs where whole sequences of n tokens have n^2, so that slices sum up to the whole, causal or not as it is
counted.
"""

from collections.abc import Mapping
from dataclasses import replace

from headway.core.batch_dims import BatchDims
from headway.core.batching import resized
from headway.core.errors import FailedPreconditionError
from headway.core.graph import Graph, Operator, OperatorKind, TensorSpec
from headway.core.iteration import Reduction

CONTEXT = "context_tokens"
"""The attribute of a slice's attention that says how many tokens are before it."""


class TokenSlices:
    """The slices of a captured step.

    Raises:
        FailedPreconditionError: the model is no causal language model: a token's result may depend on later ones.
    """

    def __init__(self, graph: Graph) -> None:
        self._name = graph.name
        attention = [each for each in graph.operators if each.kind is OperatorKind.ATTENTION]
        if not attention:
            raise self._error("it has no attention that is known as such")
        if any(each.attributes.get("is_causal") != "True" for each in attention):
            raise self._error("it has attention to later tokens")
        self._places = BatchDims(graph, along=1)
        for operator, loops in zip(graph.operators, self._places.loops, strict=True):
            if operator.space is None or operator.kind is OperatorKind.ATTENTION:
                continue
            for access in operator.space.writes:
                if any(access.reduced.get(loop) in (Reduction.WHOLE, Reduction.MOMENTS) for loop in loops):
                    raise self._error(f"all tokens meet in {operator.name}")

    @property
    def seq_len(self) -> int:
        """Tokens of each sequence."""
        return self._places.size

    def at(self, graph: Graph, slice_tokens: int, context_tokens: int) -> Graph:
        """The step of so many tokens of each sequence, after so many others.

        Args:
            graph: as it was captured, or with another number of examples, or in another precision.
        """
        cut = resized(graph, self._places, slice_tokens)
        if not context_tokens:
            return cut
        tensors = cut.tensors_by_name()
        operators = tuple(_after(each, tensors, slice_tokens, context_tokens) for each in cut.operators)
        return replace(cut, operators=operators)

    def _error(self, why: str) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"'{self._name}' cannot be cut along its tokens: {why}.",
            hint="They are for causal language models; `headway plan train --method auto` tries what a model allows.",
            field="method",
        )


def context_of(operator: Operator) -> int:
    """Tokens before the slice of an attention; 0 for all else."""
    return int(operator.attributes.get(CONTEXT, "0"))


def _after(operator: Operator, tensors: Mapping[str, TensorSpec], slice_tokens: int, context_tokens: int) -> Operator:
    """Attention with the keys and values of earlier tokens, and with their gradients."""
    if operator.kind is not OperatorKind.ATTENTION or operator.space is None:
        return operator
    read, written = (
        sum(tensors[each.tensor].num_bytes for each in accesses if "k" in each.loops and "q" not in each.loops)
        for accesses in (operator.space.reads, operator.space.writes)
    )
    return replace(
        operator,
        flops=operator.flops * (2 * context_tokens + slice_tokens) // slice_tokens,
        bytes_read=operator.bytes_read + read * context_tokens // slice_tokens,
        bytes_written=operator.bytes_written + written * context_tokens // slice_tokens,
        attributes={**operator.attributes, CONTEXT: str(context_tokens)},
    )
