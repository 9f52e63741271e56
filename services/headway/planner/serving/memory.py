"""How the memory of a group's workers is split: weights, what the runtime needs, and KV blocks.

    |<------------------------ memory_bytes ------------------------>|
    |  weights  |  reserved  |  KV blocks  |  unused, on a CPU        |

Each worker holds its own part of the weights and of every block, so the worker with the least room sets how many
blocks all of them have. The host tier's blocks, where there are any, are part of a CPU worker's memory and come besides
a GPU's. On a GPU the blocks take all that is left. On a CPU memory is shared with everything else on the machine and
compute runs out first, so the pool takes a sixteenth of it, 1 GiB at least and 4 GiB at most, unless the operator says
more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.cluster import PlanWorker
from headway.core.errors import InvalidArgumentError
from headway.core.model import ModelSpec
from headway.core.plan import EngineLimits, ModelDeployment, RankShare
from headway.core.shard import ModelShard, shard_kv_bytes_per_token, shard_of, shard_weight_bytes
from headway.core.units import format_bytes
from headway.planner.serving.batching import Batching
from headway.planner.serving.grouping import Group

_GIB = 1024**3
RUNTIME_BYTES = {"cpu": 400 * 1024**2, "cuda": _GIB}
_FLOAT_BYTES = 4
_NUM_LOGIT_COPIES = 3  # as computed, processed, and sorted or as probabilities
_CPU_POOL_SHARE = 16
_CPU_POOL_BYTES = (1 * _GIB, 4 * _GIB)
_SHORTEST_USEFUL_LEN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySplit:
    """What a replica takes of its workers. `num_blocks` blocks hold at least one sequence of `max_model_len`.

    Attributes:
        shares: of the workers, by rank.
    """

    num_blocks: int
    max_model_len: int
    num_host_blocks: int
    shares: tuple[RankShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why a model does not fit a group.

    Attributes:
        worker: of the group's, the one that lacks most.
        missing_bytes: how much memory it lacks.
        longest_len: the longest max_model_len that would fit; 0 when not even a short one does.
    """

    worker: PlanWorker
    missing_bytes: int
    longest_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """A worker with its part of a model.

    Attributes:
        block_bytes: of its part of a KV block.
        free_bytes: for KV blocks; negative where not even the rest fits.
    """

    worker: PlanWorker
    shard: ModelShard
    weight_bytes: int
    reserved_bytes: int
    block_bytes: int
    free_bytes: int

    def share(self, *, num_blocks: int, num_host_blocks: int) -> RankShare:
        return RankShare(
            worker_id=self.worker.worker_id,
            weight_bytes=self.weight_bytes,
            kv_cache_bytes=num_blocks * self.block_bytes,
            reserved_bytes=self.reserved_bytes,
            host_cache_bytes=num_host_blocks * self.block_bytes,
            first_layer=self.shard.layers.start,
            num_layers=len(self.shard.layers),
        )


def split_memory(
    model: ModelDeployment, group: Group, *, batching: Batching, limits: EngineLimits
) -> MemorySplit | Shortfall:
    """Splits the workers' memory for one model.

    Args:
        limits: the layout; the operator's sizes of a worker's pool, which else is the planner's choice, and of its host
            tier, else none.

    Raises:
        InvalidArgumentError: the model or the operator's pool cannot take sequences as long as they are to be.
    """
    shards = [shard_of(model.spec, limits.parallel, rank=rank) for rank in range(len(group))]
    block_bytes = [batching.block_size * shard_kv_bytes_per_token(model.spec, shard) for shard in shards]
    num_host_blocks = (limits.host_cache_bytes or 0) // max(block_bytes)
    rooms = [
        _measure(model.spec, worker, shard, rank=rank, batching=batching, num_host_blocks=num_host_blocks)
        for rank, (worker, shard) in enumerate(zip(group, shards, strict=True))
    ]
    num_needed = _num_blocks(shortest_len(model), batching.block_size)
    if limits.kv_cache_bytes is not None:
        _check_pool(model, limits.kv_cache_bytes, num_needed * max(block_bytes))
        num_needed = limits.kv_cache_bytes // max(block_bytes)
    if (shortfall := _find_shortfall(model.spec, rooms, num_needed, batching.block_size)) is not None:
        return shortfall
    if limits.kv_cache_bytes is not None:
        num_blocks = num_needed
        max_model_len = model.max_model_len or min(model.spec.max_position, num_blocks * batching.block_size)
    else:
        num_blocks, max_model_len = _size_pool(model, rooms, batching)
    return MemorySplit(
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        num_host_blocks=num_host_blocks,
        shares=tuple(room.share(num_blocks=num_blocks, num_host_blocks=num_host_blocks) for room in rooms),
    )


def _measure(
    spec: ModelSpec, worker: PlanWorker, shard: ModelShard, *, rank: int, batching: Batching, num_host_blocks: int
) -> _Room:
    device = worker.hardware.device
    weight_bytes = shard_weight_bytes(spec, shard)
    reserved_bytes = reserve(spec, shard, leads=rank == 0, device=device, batching=batching)
    block_bytes = batching.block_size * shard_kv_bytes_per_token(spec, shard)
    host_bytes = num_host_blocks * block_bytes if device == "cpu" else 0
    return _Room(
        worker=worker,
        shard=shard,
        weight_bytes=weight_bytes,
        reserved_bytes=reserved_bytes,
        block_bytes=block_bytes,
        free_bytes=worker.hardware.memory_bytes - weight_bytes - reserved_bytes - host_bytes,
    )


def reserve(spec: ModelSpec, shard: ModelShard, *, leads: bool, device: str, batching: Batching) -> int:
    """Bytes of the runtime itself, the widest activations of one step, and the logits of every sequence.

    Where the vocabulary is split every worker has a part of the logits; the leader gathers them and works on the whole.
    """
    widths = 4 * spec.hidden_size + _mlp_width(spec, shard) + 2 * len(shard.query_heads) * spec.head_dim
    activation_bytes = batching.max_num_batched_tokens * widths * _FLOAT_BYTES
    is_split = len(shard.vocab) < spec.vocab_size
    num_copies = _NUM_LOGIT_COPIES + is_split if leads else 0
    num_logits = num_copies * spec.vocab_size + is_split * len(shard.vocab)
    return RUNTIME_BYTES[device] + activation_bytes + batching.max_num_seqs * num_logits * _FLOAT_BYTES


def _mlp_width(spec: ModelSpec, shard: ModelShard) -> int:
    """Floats that a token keeps in a layer's MLP; with experts also what each of its own made of it."""
    if (experts := spec.experts) is None:
        return 3 * len(shard.mlp)
    width = max(len(shard.mlp), experts.intermediate_size, len(shard.shared_mlp))
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


def _find_shortfall(spec: ModelSpec, rooms: Sequence[_Room], num_blocks: int, block_size: int) -> Shortfall | None:
    """Of the worker that lacks most for `num_blocks` blocks; None where all have room."""
    missing_bytes, worst = max(
        ((num_blocks * room.block_bytes - room.free_bytes, room) for room in rooms), key=lambda pair: pair[0]
    )
    if missing_bytes <= 0:
        return None
    longest_len = min(max(room.free_bytes, 0) // room.block_bytes for room in rooms) * block_size
    is_useful = longest_len >= min(spec.max_position, _SHORTEST_USEFUL_LEN)
    return Shortfall(worker=worst.worker, missing_bytes=missing_bytes, longest_len=longest_len if is_useful else 0)


def _size_pool(model: ModelDeployment, rooms: Sequence[_Room], batching: Batching) -> tuple[int, int]:
    """Number of blocks, and the longest sequence to serve."""
    sizes = [_pool_blocks(room) for room in rooms]
    num_usual, num_most = (min(numbers) for numbers in zip(*sizes, strict=True))
    affordable_len = min(model.spec.max_position, num_most * batching.block_size)
    max_model_len = model.max_model_len or max(affordable_len, shortest_len(model))
    num_longest = _num_blocks(max_model_len, batching.block_size)
    return min(max(num_usual, num_longest), batching.max_num_seqs * num_longest), max_model_len


def _pool_blocks(room: _Room) -> tuple[int, int]:
    """How many blocks a worker usually has, and how many a longer sequence may take."""
    if room.worker.hardware.device != "cpu":
        return room.free_bytes // room.block_bytes, room.free_bytes // room.block_bytes
    least_bytes, most_bytes = _CPU_POOL_BYTES
    most_bytes = min(room.free_bytes, most_bytes)
    usual_bytes = min(most_bytes, max(least_bytes, room.worker.hardware.memory_bytes // _CPU_POOL_SHARE))
    return usual_bytes // room.block_bytes, most_bytes // room.block_bytes


def _num_blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)
