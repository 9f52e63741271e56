"""Bytes that leave a rank in one step of a group, derived, beside those of the thesis' section 4.4.

Sums over N ranks are rings, or for N = 2 swaps: either way 2 (N - 1) / N of the tensor leaves each rank.
"""

from dataclasses import dataclass

from headway.core.mesh import ParallelConfig
from headway.core.model import ModelSpec
from headway.core.shard import shard_of

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
    return step_bytes(spec, shape, parallel=ParallelConfig(tp=num_ranks), rank=1)


def step_bytes(spec: ModelSpec, shape: StepShape, *, parallel: ParallelConfig, rank: int) -> int:
    """Of any rank of a group of stages, tensor-parallel or not.

    The stages before the last send the residual stream on, T H elements. The first sums the embedding, every stage
    two tensors in each of its layers; the ranks of the last that do not lead send their rows of the logits.
    """
    shard, num_parts = shard_of(spec, parallel, rank=rank), parallel.tp
    stream_bytes = shape.num_tokens * spec.hidden_size * spec.dtype_bytes
    embedded_bytes = shape.num_tokens * (spec.embedding_dim or spec.hidden_size) * spec.dtype_bytes
    sums = [stream_bytes] * (2 * len(shard.layers))
    if shard.is_last:
        sums[-2:] = [shape.num_wanted * spec.hidden_size * spec.dtype_bytes] * 2
    if shard.is_first:
        sums.append(embedded_bytes)
    num_bytes = sum(2 * (num_parts - 1) * size // num_parts for size in sums)
    if not shard.is_last:
        num_bytes += stream_bytes
    elif parallel.place(rank).tensor > 0:
        num_bytes += shape.num_wanted * -(-spec.vocab_size // num_parts) * FLOAT32_BYTES
    return num_bytes


def layer_elements(hidden_size: int, *, batch: int, num_ranks: int) -> float:
    """Elements that leave a rank per layer: two sums of [batch, hidden]."""
    return 4 * (num_ranks - 1) / num_ranks * batch * hidden_size


def thesis_layer_elements(hidden_size: int, *, batch: int, num_ranks: int) -> float:
    """As the text has it (section 4.4), without the division by N that a ring, or a swap, makes."""
    return 4.0 * (num_ranks - 1) * batch * hidden_size
