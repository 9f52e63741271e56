"""Splits the memory of a group's workers between weights, what the runtime needs, and KV blocks.

    |<------------------------ memory_bytes ------------------------>|
    |  weights  |  reserved  |  KV blocks  |  unused, on a CPU        |

Each worker holds its own part of the weights: its share of its stage's layers and of the head, and in the first stage
of the embedding. A cache shard has blocks of its own, and each of its workers a part of every one of them: that of
its layers and heads. All shards have equally many blocks, so the worker with the least room sets how many. Stages take
equally long, as far as whole layers allow, unless that does not fit and another split does.

The host tier's blocks, where there are any, are part of a CPU worker's memory and come besides a GPU's. On a GPU the
blocks take all that is left. On a CPU memory is shared with everything else on the machine and compute runs out first,
so the pool takes a sixteenth of it, 1 GiB at least and 4 GiB at most, unless the operator says more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headway.core.cluster import PlanWorker
from headway.core.errors import InvalidArgumentError
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig, Place, Span
from headway.core.plan.serving import EngineLimits, ModelDeployment, RankShare
from headway.core.shard import ModelShard, shard_of, shard_weight_bytes
from headway.core.units import format_bytes
from headway.planner.serving.batching import Batching
from headway.planner.serving.grouping import Group
from headway.planner.serving.stages import balance_stages, with_fastest_stages
from headway.planner.serving.workspace import reserve

_GIB = 1024**3
_CPU_POOL_SHARE = 16
_CPU_POOL_BYTES = (1 * _GIB, 4 * _GIB)
_SHORTEST_USEFUL_LEN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySplit:
    """A replica's part of its workers' memory. `num_blocks` blocks hold at least one sequence of `max_model_len`.

    Attributes:
        num_blocks, num_host_blocks: of all cache shards together.
        parallel: the layout; with its stages' layers where they are uneven.
        shares: of the workers, by rank.
    """

    num_blocks: int
    max_model_len: int
    num_host_blocks: int
    parallel: ParallelConfig
    shares: tuple[RankShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The reason that a model does not fit a group.

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
    """One worker with its part of a model.

    Attributes:
        block_bytes: of its part of a KV block.
        free_bytes: for KV blocks; negative where not even the rest fits.
    """

    worker: PlanWorker
    layers: Span
    weight_bytes: int
    reserved_bytes: int
    block_bytes: int
    free_bytes: int

    def lacking_bytes(self, num_blocks: int) -> int:
        """Bytes that lack for so many blocks; negative where there is room for more."""
        return num_blocks * self.block_bytes - self.free_bytes

    def share(self, *, num_blocks: int, num_host_blocks: int) -> RankShare:
        return RankShare(
            worker_id=self.worker.worker_id,
            weight_bytes=self.weight_bytes,
            kv_cache_bytes=num_blocks * self.block_bytes,
            reserved_bytes=self.reserved_bytes,
            host_cache_bytes=num_host_blocks * self.block_bytes,
            first_layer=self.layers.start,
            num_layers=len(self.layers),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rooms:
    """A group's workers with their parts of a model, by rank. Numbers of blocks are those of one cache shard."""

    parallel: ParallelConfig
    ranks: tuple[_Room, ...]
    num_host_blocks: int

    @property
    def block_bytes(self) -> int:
        """Bytes of the largest part of a block."""
        return max(room.block_bytes for room in self.ranks)

    def lacking_bytes(self, num_blocks: int) -> tuple[int, ...]:
        """Bytes that lack in each stage, at the worker that lacks most."""
        stages: list[list[int]] = [[] for _ in range(self.parallel.pp)]
        for rank, room in enumerate(self.ranks):
            stages[self.parallel.place(rank).stage].append(room.lacking_bytes(num_blocks))
        return tuple(map(max, stages))

    def fit(self, num_blocks: int) -> bool:
        return max(self.lacking_bytes(num_blocks)) <= 0


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
    parallel = limits.parallel
    num_least = _num_blocks(shortest_len(model), batching.block_size * parallel.cp)

    def measure(layout: ParallelConfig) -> tuple[_Rooms, int]:
        """Finds the workers' rooms, and how many blocks they must have."""
        rooms = _measure_group(model.spec, group, layout, batching=batching, limits=limits)
        return rooms, max(num_least, (limits.kv_cache_bytes or 0) // rooms.block_bytes)

    rooms, num_needed = measure(with_fastest_stages(model.spec, parallel))
    if limits.kv_cache_bytes is not None:
        if limits.kv_cache_bytes < num_least * rooms.block_bytes:  # of a stage with many layers
            rooms, num_needed = measure(parallel)
        _check_pool(model, limits.kv_cache_bytes, num_least * rooms.block_bytes)
    if not rooms.fit(num_needed):
        shortfall = _shortfall(model.spec, rooms, num_needed, batching.block_size)
        if parallel.pp == 1 or parallel.stage_layers:
            return shortfall
        rooms, num_needed = _balance(rooms, measure)
        if not rooms.fit(num_needed):
            return shortfall
    if limits.kv_cache_bytes is not None:
        num_blocks = num_needed
        num_tokens = num_blocks * parallel.cp * batching.block_size
        max_model_len = model.max_model_len or min(model.spec.max_position, num_tokens)
    else:
        num_blocks, max_model_len = _size_pool(model, rooms, batching)
    return MemorySplit(
        num_blocks=num_blocks * parallel.cp,
        max_model_len=max_model_len,
        num_host_blocks=rooms.num_host_blocks * parallel.cp,
        parallel=rooms.parallel,
        shares=tuple(room.share(num_blocks=num_blocks, num_host_blocks=rooms.num_host_blocks) for room in rooms.ranks),
    )


def _balance(fastest: _Rooms, measure: Callable[[ParallelConfig], tuple[_Rooms, int]]) -> tuple[_Rooms, int]:
    """Balances the stages so that the one that lacks most lacks as little as possible."""
    parallel = fastest.parallel
    leaders = (fastest.ranks[parallel.rank_of(Place(stage, 0, 0))] for stage in range(parallel.pp))

    def lacking_bytes(sizes: tuple[int, ...]) -> Sequence[int]:
        rooms, num_blocks = measure(replace(parallel, stage_layers=sizes))
        return rooms.lacking_bytes(num_blocks)

    sizes = balance_stages([len(room.layers) for room in leaders], lacking_bytes)
    return measure(replace(parallel, stage_layers=sizes))


def _measure_group(
    spec: ModelSpec, group: Group, parallel: ParallelConfig, *, batching: Batching, limits: EngineLimits
) -> _Rooms:
    shards = [shard_of(spec, parallel, rank=rank) for rank in range(len(group))]
    block_bytes = [
        batching.block_size * _kv_bytes_per_token(spec, [shards[mate] for mate in parallel.cache_ranks(rank)])
        for rank in range(len(group))
    ]
    num_host_blocks = (limits.host_cache_bytes or 0) // max(block_bytes)
    rooms = []
    for rank, worker in enumerate(group):
        hardware, shard = worker.hardware, shards[rank]
        weight_bytes = shard_weight_bytes(spec, shard)
        reserved_bytes = reserve(spec, shard, parallel, leads=rank == 0, hardware=hardware, batching=batching)
        host_bytes = num_host_blocks * block_bytes[rank] if hardware.device == "cpu" else 0
        free_bytes = hardware.memory_bytes - weight_bytes - reserved_bytes - host_bytes
        rooms.append(
            _Room(
                worker=worker,
                layers=shard.layers,
                weight_bytes=weight_bytes,
                reserved_bytes=reserved_bytes,
                block_bytes=block_bytes[rank],
                free_bytes=free_bytes if limits.kv_cache_bytes is None else min(free_bytes, limits.kv_cache_bytes),
            )
        )
    return _Rooms(parallel=parallel, ranks=tuple(rooms), num_host_blocks=num_host_blocks)


def _kv_bytes_per_token(spec: ModelSpec, mates: Sequence[ModelShard]) -> int:
    """Bytes of keys and values of a token on one of these cache shards: where they share the weights of heads, each has
    all of those."""
    num_kv_heads = len({head for shard in mates for head in shard.kv_heads})
    return len(mates[0].layers) * spec.kv_width(num_kv_heads) * spec.dtype_bytes


def shortest_len(model: ModelDeployment) -> int:
    """The shortest length that a replica must be able to hold; InvalidArgumentError where the model cannot take it."""
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


def _shortfall(spec: ModelSpec, rooms: _Rooms, num_blocks: int, block_size: int) -> Shortfall:
    """The shortfall of the worker that lacks most for `num_blocks` blocks."""
    worst = max(rooms.ranks, key=lambda room: room.lacking_bytes(num_blocks))
    num_fitting = min(max(room.free_bytes, 0) // room.block_bytes for room in rooms.ranks)
    longest_len = num_fitting * rooms.parallel.cp * block_size
    is_useful = longest_len >= min(spec.max_position, _SHORTEST_USEFUL_LEN)
    return Shortfall(
        worker=worst.worker,
        missing_bytes=worst.lacking_bytes(num_blocks),
        longest_len=longest_len if is_useful else 0,
    )


def _size_pool(model: ModelDeployment, rooms: _Rooms, batching: Batching) -> tuple[int, int]:
    """Chooses the number of blocks of a cache shard, and the longest sequence to serve."""
    sizes = [_pool_blocks(room) for room in rooms.ranks]
    num_usual, num_most = (min(numbers) for numbers in zip(*sizes, strict=True))
    slice_tokens = rooms.parallel.cp * batching.block_size  # of one block on each shard
    affordable_len = min(model.spec.max_position, num_most * slice_tokens)
    max_model_len = model.max_model_len or max(affordable_len, shortest_len(model))
    num_longest = _num_blocks(max_model_len, slice_tokens)
    return min(max(num_usual, num_longest), batching.max_num_seqs * num_longest), max_model_len


def _pool_blocks(room: _Room) -> tuple[int, int]:
    """The number of blocks that a worker usually has, and the number that a longer sequence may take."""
    if room.worker.hardware.device != "cpu":
        return room.free_bytes // room.block_bytes, room.free_bytes // room.block_bytes
    least_bytes, most_bytes = _CPU_POOL_BYTES
    most_bytes = min(room.free_bytes, most_bytes)
    usual_bytes = min(most_bytes, max(least_bytes, room.worker.hardware.memory_bytes // _CPU_POOL_SHARE))
    return usual_bytes // room.block_bytes, most_bytes // room.block_bytes


def _num_blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)
