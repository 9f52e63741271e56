"""Bytes that leave a rank in one step of a tensor-parallel group, derived, beside those of the thesis' section 4.4.

Sums over N ranks are rings, or for N = 2 swaps: either way 2 (N - 1) / N of the tensor leaves each rank.
"""

from dataclasses import dataclass

from headway.core.model import ModelSpec

FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """What a step computes.

    Attributes:
        num_tokens: that go through the layers.
        num_wanted: whose logits are wanted; of the others the last layer keeps only keys and values.
    """

    num_tokens: int
    num_wanted: int


def tensor_parallel_bytes(spec: ModelSpec, shape: StepShape, *, num_ranks: int) -> int:
    """Of a rank that does not lead: the embedding, two sums in each layer, and its rows of the logits."""
    row_bytes = spec.hidden_size * spec.dtype_bytes
    num_rows = shape.num_tokens * (1 + 2 * (spec.num_layers - 1)) + 2 * shape.num_wanted
    logits = shape.num_wanted * -(-spec.vocab_size // num_ranks) * FLOAT32_BYTES
    return 2 * (num_ranks - 1) * num_rows * row_bytes // num_ranks + logits


def layer_elements(hidden_size: int, *, batch: int, num_ranks: int) -> float:
    """Elements that leave a rank per layer: two sums of [batch, hidden]."""
    return 4 * (num_ranks - 1) / num_ranks * batch * hidden_size


def thesis_layer_elements(hidden_size: int, *, batch: int, num_ranks: int) -> float:
    """As the text has it (section 4.4), without the division by N that a ring, or a swap, makes."""
    return 4.0 * (num_ranks - 1) * batch * hidden_size
