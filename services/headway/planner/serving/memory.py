"""How a worker's memory is split: weights, what the runtime needs, and KV blocks.

    |<------------------------ memory_bytes ------------------------>|
    |  weights  |  reserved  |  KV blocks  |  unused, on a CPU        |

The host tier's blocks, where there are any, are part of a CPU worker's memory and come besides a GPU's.
On a GPU the blocks take all that is left. On a CPU memory is shared with everything else on the machine and compute
runs out first, so the pool takes a sixteenth of it, 1 GiB at least and 4 GiB at most, unless the operator says more.
"""

from dataclasses import dataclass

from headway.core.cluster import Hardware
from headway.core.errors import InvalidArgumentError
from headway.core.model import ModelSpec
from headway.core.plan import EngineLimits, ModelDeployment
from headway.core.units import format_bytes
from headway.planner.serving.batching import Batching

_GIB = 1024**3
RUNTIME_BYTES = {"cpu": 400 * 1024**2, "cuda": _GIB}
_FLOAT_BYTES = 4
_NUM_LOGIT_COPIES = 3  # as computed, processed, and sorted or as probabilities
_CPU_POOL_SHARE = 16
_CPU_POOL_BYTES = (1 * _GIB, 4 * _GIB)
_SHORTEST_USEFUL_LEN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySplit:
    """What a replica takes of its worker. `num_blocks` blocks hold at least one sequence of `max_model_len`."""

    weight_bytes: int
    reserved_bytes: int
    num_blocks: int
    kv_cache_bytes: int
    max_model_len: int
    num_host_blocks: int
    host_cache_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why a model does not fit a worker.

    Attributes:
        missing_bytes: how much memory the worker lacks.
        longest_len: the longest max_model_len that would fit; 0 when not even a short one does.
    """

    missing_bytes: int
    longest_len: int


def split_memory(
    model: ModelDeployment, hardware: Hardware, *, batching: Batching, limits: EngineLimits
) -> MemorySplit | Shortfall:
    """Splits a worker's memory for one model.

    Args:
        limits: the operator's sizes of the pool, which else is the planner's choice, and of the host tier, else none.

    Raises:
        InvalidArgumentError: the model or the operator's pool cannot take sequences as long as they are to be.
    """
    spec, block_size = model.spec, batching.block_size
    reserved_bytes = reserve(spec, device=hardware.device, batching=batching)
    block_bytes = block_size * spec.kv_bytes_per_token
    num_host_blocks = (limits.host_cache_bytes or 0) // block_bytes if block_bytes else 0
    free_bytes = hardware.memory_bytes - spec.weight_bytes - reserved_bytes
    if hardware.device == "cpu":
        free_bytes -= num_host_blocks * block_bytes
    kv_cache_bytes = limits.kv_cache_bytes
    needed_bytes = _num_blocks(shortest_len(model), block_size) * block_bytes
    if kv_cache_bytes is not None:
        _check_pool(model, kv_cache_bytes, needed_bytes)
        needed_bytes = kv_cache_bytes
    if free_bytes < needed_bytes:
        longest_len = max(free_bytes, 0) // block_bytes * block_size
        is_useful = longest_len >= min(spec.max_position, _SHORTEST_USEFUL_LEN)
        return Shortfall(missing_bytes=needed_bytes - free_bytes, longest_len=longest_len if is_useful else 0)

    num_blocks, max_model_len = _size_pool(model, hardware, batching, free_bytes, kv_cache_bytes)
    return MemorySplit(
        weight_bytes=spec.weight_bytes,
        reserved_bytes=reserved_bytes,
        num_blocks=num_blocks,
        kv_cache_bytes=num_blocks * block_bytes,
        max_model_len=max_model_len,
        num_host_blocks=num_host_blocks,
        host_cache_bytes=num_host_blocks * block_bytes,
    )


def reserve(spec: ModelSpec, *, device: str, batching: Batching) -> int:
    """Bytes of the runtime itself, the widest activations of one step, and the logits of every sequence."""
    widths = 4 * spec.hidden_size + _mlp_width(spec) + 2 * spec.num_heads * spec.head_dim
    activation_bytes = batching.max_num_batched_tokens * widths * _FLOAT_BYTES
    logit_bytes = batching.max_num_seqs * spec.vocab_size * _FLOAT_BYTES * _NUM_LOGIT_COPIES
    return RUNTIME_BYTES[device] + activation_bytes + logit_bytes


def _mlp_width(spec: ModelSpec) -> int:
    """Floats that a token keeps in a layer's MLP; with experts also what each of its own made of it."""
    if (experts := spec.experts) is None:
        return 3 * spec.intermediate_size
    width = max(spec.intermediate_size, experts.intermediate_size, experts.shared_intermediate_size)
    return 3 * width + (experts.num_experts_per_tok + 1) * spec.hidden_size


def shortest_len(model: ModelDeployment) -> int:
    """The sequence length that a replica must hold at least; InvalidArgumentError where the model cannot take it."""
    asked, longest = model.max_model_len, model.spec.max_position
    if asked is None:
        return min(longest, _SHORTEST_USEFUL_LEN)
    if not 2 <= asked <= longest:
        raise InvalidArgumentError(
            f"Model '{model.name}': max_model_len is {asked}; the model takes 2 to {longest} tokens.",
            hint=f"Set it to at most {longest}, or leave it out.",
            field="max_model_len",
        )
    return asked


def _check_pool(model: ModelDeployment, kv_cache_bytes: int, needed_bytes: int) -> None:
    if kv_cache_bytes < needed_bytes:
        raise InvalidArgumentError(
            f"Model '{model.name}': kv_cache_bytes is {format_bytes(kv_cache_bytes)}, but one sequence of "
            f"{shortest_len(model)} tokens keeps {format_bytes(needed_bytes)}.",
            hint=f"Set kv_cache_bytes to at least {needed_bytes}, or max_model_len lower.",
            field="kv_cache_bytes",
        )


def _size_pool(
    model: ModelDeployment, hardware: Hardware, batching: Batching, free_bytes: int, kv_cache_bytes: int | None
) -> tuple[int, int]:
    """Number of blocks, and the longest sequence to serve."""
    spec, block_size = model.spec, batching.block_size
    block_bytes = block_size * spec.kv_bytes_per_token
    if kv_cache_bytes is not None:
        num_blocks = kv_cache_bytes // block_bytes
        return num_blocks, model.max_model_len or min(spec.max_position, num_blocks * block_size)
    most_bytes, pool_bytes = free_bytes, free_bytes
    if hardware.device == "cpu":
        least, most = _CPU_POOL_BYTES
        most_bytes = min(free_bytes, most)
        pool_bytes = min(most_bytes, max(least, hardware.memory_bytes // _CPU_POOL_SHARE))
    affordable_len = min(spec.max_position, most_bytes // block_bytes * block_size)
    max_model_len = model.max_model_len or max(affordable_len, shortest_len(model))
    num_longest = _num_blocks(max_model_len, block_size)
    return min(max(pool_bytes // block_bytes, num_longest), batching.max_num_seqs * num_longest), max_model_len


def _num_blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)
