"""The collectives between the ranks of a group in a step.

Bytes are those that leave the rank that sends most: of a sum over N ranks 2 (N-1)/N of the tensor (a ring, or for N = 2
a swap), of an all-gather N-1 times its own part (a ring), of an all-to-all what the others get, of a gather its own
part. `benchmarks/parallel/volume.py` has them for every rank, and is what the runtime is counted against.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from headway.core.links import LinkFigure, Links
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig, Place
from headway.core.shard import ModelShard, shard_of

_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCollective:
    """One kind of collective, in a step of one stage.

    Attributes:
        operation: 'all_reduce', 'all_gather', 'all_to_all', 'gather' or 'send'.
        num_calls: in a step.
        token_bytes: leave the rank for each token of the step, in all calls together.
        wanted_bytes: for each token whose logits are wanted, besides.
    """

    operation: str
    num_ranks: int
    num_calls: int
    token_bytes: float = 0.0
    wanted_bytes: float = 0.0

    def figure(self, links: Links) -> LinkFigure:
        return links.figure(self.operation, num_ranks=self.num_ranks)

    def base_s(self, links: Links) -> float:
        """Seconds of a step's calls, however little they carry."""
        return self.num_calls * self.figure(links).latency_s

    def wire_s(self, num_bytes: float, links: Links) -> float:
        """Seconds for what leaves each rank; in a gather all of it comes in at the leader."""
        num_senders = self.num_ranks - 1 if self.operation == "gather" else 1
        return num_senders * num_bytes / self.figure(links).bytes_per_s


def collectives_of(spec: ModelSpec, parallel: ParallelConfig, *, stage: int) -> tuple[StepCollective, ...]:
    """Returns the collectives that a rank of a stage takes part in for its layers, in the order of the network."""
    shard = shard_of(spec, parallel, rank=parallel.rank_of(Place(stage, 0, 0)))
    collectives = (
        *_weight_collectives(spec, parallel, shard),
        *_cache_collectives(spec, parallel, shard),
        *_pass_on(spec, parallel, shard),
    )
    return tuple(collective for collective in collectives if collective.num_ranks > 1)


def head_collectives_of(spec: ModelSpec, parallel: ParallelConfig) -> tuple[StepCollective, ...]:
    """Those that all stages take part in for the logits: the wanted tokens' hidden states from the last stage, and the
    logits to the leader, along the vocabulary and, where shards have tokens of their own, along these."""
    num_hidden, parts, own = spec.embedding_dim or spec.hidden_size, weight_parts(parallel), own_share(parallel)
    num_ranks = parts * parallel.pp
    collectives = (
        StepCollective(
            operation="all_gather",
            num_ranks=num_ranks if parallel.pp > 1 else 1,
            num_calls=1,
            wanted_bytes=own * (num_ranks - 1) * num_hidden * spec.dtype_bytes,
        ),
        StepCollective(
            operation="gather",
            num_ranks=num_ranks,
            num_calls=1,
            wanted_bytes=own * -(-spec.vocab_size // num_ranks) * _FLOAT32_BYTES,
        ),
        StepCollective(
            operation="gather",
            num_ranks=parallel.cp if own < 1 else 1,
            num_calls=1,
            wanted_bytes=own * spec.vocab_size * _FLOAT32_BYTES,
        ),
    )
    return tuple(collective for collective in collectives if collective.num_ranks > 1)


def figures_of(spec: ModelSpec, parallel: ParallelConfig, links: Links) -> tuple[LinkFigure, ...]:
    """Returns the figures of every collective of a step, each once."""
    stages = (collectives_of(spec, parallel, stage=stage) for stage in range(parallel.pp))
    collectives = chain(*stages, () if spec.encoder is not None else head_collectives_of(spec, parallel))
    return tuple(dict.fromkeys(collective.figure(links) for collective in collectives))


def own_share(parallel: ParallelConfig) -> float:
    """Returns the share of a step's tokens that a rank has outside attention."""
    return 1 / parallel.cp if parallel.cp_ffn == "data" else 1.0


def weight_parts(parallel: ParallelConfig) -> int:
    """Ranks that share each weight."""
    return parallel.tp * (parallel.cp if parallel.cp_ffn == "tensor" else 1)


def _weight_collectives(spec: ModelSpec, parallel: ParallelConfig, shard: ModelShard) -> Iterator[StepCollective]:
    """The embedding, and in each layer what attention and MLP give, are summed; a decoder's last layer goes on with the
    wanted tokens only."""
    parts = weight_parts(parallel)
    ring = own_share(parallel) * 2 * (parts - 1) / parts * spec.dtype_bytes
    num_whole = 2 * (len(shard.layers) - (shard.is_last and spec.encoder is None))
    width = num_whole * spec.hidden_size + shard.is_first * (spec.embedding_dim or spec.hidden_size)
    yield StepCollective(
        operation="all_reduce",
        num_ranks=parts,
        num_calls=2 * len(shard.layers) + shard.is_first,
        token_bytes=ring * width,
        wanted_bytes=ring * 2 * shard.is_last * spec.hidden_size,
    )


def _cache_collectives(spec: ModelSpec, parallel: ParallelConfig, shard: ModelShard) -> Iterator[StepCollective]:
    """In each layer every shard gets all queries, keys and values, and gives back what its part of the cache makes of
    them: an output and the logarithm of its weight, in float32."""
    num_layers, num_others = len(shard.layers), parallel.cp - 1
    num_projected = len(shard.query_heads) + 2 * len(shard.kv_heads)
    yield StepCollective(
        operation="all_gather",
        num_ranks=parallel.cp,
        num_calls=num_layers,
        token_bytes=own_share(parallel) * num_others * num_layers * num_projected * spec.head_dim * spec.dtype_bytes,
    )
    yield StepCollective(
        operation="all_to_all",
        num_ranks=parallel.cp,
        num_calls=num_layers,
        token_bytes=num_layers * _given_heads(spec, parallel, shard) * (spec.head_dim + 1) * _FLOAT32_BYTES,
    )


def _given_heads(spec: ModelSpec, parallel: ParallelConfig, shard: ModelShard) -> float:
    """Heads of a token whose partial results leave the rank for others."""
    num_heads = len(shard.attended_query_heads)
    if parallel.cp_ffn == "data":
        return num_heads * (parallel.cp - 1) / parallel.cp
    last = parallel.rank_of(Place(0, parallel.cp - 1, 0))  # the shard that keeps the fewest for itself
    return num_heads - len(shard_of(spec, parallel, rank=last).query_heads)


def _pass_on(spec: ModelSpec, parallel: ParallelConfig, shard: ModelShard) -> Iterator[StepCollective]:
    """The residual stream, from each rank to its counterpart in the stage after."""
    if shard.is_last:
        return
    token_bytes = own_share(parallel) * spec.hidden_size * spec.dtype_bytes
    yield StepCollective(operation="send", num_ranks=2, num_calls=1, token_bytes=token_bytes)
