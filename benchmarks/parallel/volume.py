"""Bytes that leave a rank in one step of a group of any layout, derived from the shapes alone.

A sum over N ranks is a ring, or for N = 2 a swap: either way 2 (N - 1) / N of the tensor leaves each rank. In an
all-gather each sends what it has N - 1 times; in an all-to-all what is for others, once; in a gather what it has, once,
but for the first rank. `docs/benchmarks/parallel.md` has the derivation beside section 4.4 of the thesis.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig, Span, split
from headway.core.shard import shard_kv_bytes_per_token, shard_of
from headway.engine.batch import StepBatch
from headway.runner.inputs import num_scored_tokens
from headway.runner.parallel.collective_counters import CollectiveKey

FLOAT32_BYTES = 4
TOKEN_BYTES = 8

Volumes = dict[CollectiveKey, int]
"""Bytes by what they are sent for; what is nothing is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """What a step computes and copies.

    Attributes:
        num_tokens: that go through the layers.
        wanted_rows: those of them whose logits are wanted; of the others the last layer keeps only keys and values.
        best_rows: those of the wanted ones of which no more than the best token is.
        copied_from: shards of the cache, one for each block that is copied from it to another.
    """

    num_tokens: int
    wanted_rows: tuple[int, ...]
    best_rows: tuple[int, ...] = ()
    copied_from: tuple[int, ...] = ()

    @classmethod
    def of(cls, batch: StepBatch, *, num_blocks: int, num_host_blocks: int = 0) -> "StepShape":
        """Args: blocks of each shard of the cache, and of its host tier."""
        tiers = (
            (batch.swap_out, num_blocks, num_host_blocks),
            (batch.swap_in, num_host_blocks, num_blocks),
            (batch.block_copies, num_blocks, num_blocks),
        )
        copied_from = [
            source // num_sources
            for pairs, num_sources, num_targets in tiers
            for source, target in pairs
            if source // num_sources != target // num_targets
        ]
        wanted_rows: list[int] = []
        best_rows: list[int] = []
        start = 0
        for share in batch.sequences:
            end = start + share.num_new_tokens
            wanted_rows += range(start, start + num_scored_tokens(share))
            sampled = range(end - 1 - len(share.draft_token_ids), end) if share.samples else ()
            wanted_rows += sampled
            best_rows += sampled if share.wants_best else ()
            start = end
        return cls(
            num_tokens=start,
            wanted_rows=tuple(wanted_rows),
            best_rows=tuple(best_rows),
            copied_from=tuple(copied_from),
        )


def step_bytes(
    spec: ModelSpec, shape: StepShape, *, parallel: ParallelConfig, rank: int, block_size: int = 16
) -> Volumes:
    """Bytes that leave one rank of a group in a step.

    Args:
        block_size: tokens of a KV block.
    """
    volumes: Volumes = {}
    rows = _Rows.of(shape, parallel, rank=rank)
    for key, num_bytes in (
        *_sums(spec, rows, parallel, rank),
        *_collectives(spec, rows, parallel, rank),
        *_logits(spec, rows, parallel, rank),
        *_stream(spec, rows, parallel, rank),
        *_copies(spec, shape, parallel, rank, block_size),
    ):
        if num_bytes:
            volumes[key] = volumes.get(key, 0) + num_bytes
    return volumes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """How many rows there are, and how many of them this rank computes outside attention; of those how many are wanted,
    and of how many just the best token."""

    num_tokens: int
    num_own: int
    num_wanted: int
    num_best: int

    @classmethod
    def of(cls, shape: StepShape, parallel: ParallelConfig, *, rank: int) -> "_Rows":
        own = Span(0, shape.num_tokens)
        if parallel.cp_ffn == "data":
            own = split(shape.num_tokens, parts=parallel.cp, index=parallel.place(rank).shard)
        num_wanted, num_best = (
            sum(own.start <= row < own.stop for row in rows) for rows in (shape.wanted_rows, shape.best_rows)
        )
        return cls(num_tokens=shape.num_tokens, num_own=len(own), num_wanted=num_wanted, num_best=num_best)


Sent = Iterator[tuple[CollectiveKey, int]]


def _sums(spec: ModelSpec, rows: _Rows, parallel: ParallelConfig, rank: int) -> Sent:
    """The first stage's embedding, and in each layer what attention gives and what the MLP gives, over all ranks that
    share a weight. The last layer goes on with the wanted rows only."""
    shard, num_parts = shard_of(spec, parallel, rank=rank), len(parallel.weight_ranks(rank))

    def ring(num_rows: int, width: int) -> int:
        return 2 * (num_parts - 1) * num_rows * width * spec.dtype_bytes // num_parts

    if shard.is_first:
        yield (
            CollectiveKey("tensor", "all_reduce", "embedding"),
            ring(rows.num_own, spec.embedding_dim or spec.hidden_size),
        )
    for site in ("attention", "mlp"):
        for layer in shard.layers:
            num_rows = rows.num_wanted if layer == spec.num_layers - 1 else rows.num_own
            yield CollectiveKey("tensor", "all_reduce", site), ring(num_rows, spec.hidden_size)


def _collectives(spec: ModelSpec, rows: _Rows, parallel: ParallelConfig, rank: int) -> Sent:
    """In each layer: the queries, keys and values that this rank has projected, to every other shard; and to each what
    this shard says about its rows, or its heads: outputs, and beside each the logarithm of its weight."""
    shard, num_others = shard_of(spec, parallel, rank=rank), parallel.cp - 1
    num_layers, num_heads = len(shard.layers), len(shard.attended_query_heads)
    num_projected = len(shard.query_heads) + 2 * len(shard.kv_heads)
    row_bytes = num_projected * spec.head_dim * spec.dtype_bytes
    yield CollectiveKey("cache", "all_gather", "qkv"), num_layers * num_others * rows.num_own * row_bytes
    if parallel.cp_ffn == "data":
        num_given = (rows.num_tokens - rows.num_own) * num_heads
    else:
        num_given = rows.num_tokens * (num_heads - len(shard.query_heads))
    partial_bytes = (spec.head_dim + 1) * FLOAT32_BYTES
    yield CollectiveKey("cache", "all_to_all", "partials"), num_layers * num_given * partial_bytes


def _logits(spec: ModelSpec, rows: _Rows, parallel: ParallelConfig, rank: int) -> Sent:
    """Between stages: the wanted rows' hidden states, from the last one to all that share the head. Then each rank's
    part of the vocabulary, padded to the longest, to the first of these; and from there, where shards have rows of
    their own, whole rows to the leader. Where the best token is enough, it takes the place of a row of logits; on its
    first way with its logit, each in eight bytes."""
    part, num_parts = parallel.head_part(rank)
    axis = "pipeline" if parallel.pp > 1 else "tensor"
    if part > 0:
        part_bytes = -(-spec.vocab_size // num_parts) * FLOAT32_BYTES
        yield CollectiveKey(axis, "gather", "logits"), (rows.num_wanted - rows.num_best) * part_bytes
        yield CollectiveKey(axis, "gather", "best"), rows.num_best * 2 * TOKEN_BYTES
        return
    if parallel.pp > 1:
        row_bytes = (spec.embedding_dim or spec.hidden_size) * spec.dtype_bytes
        yield CollectiveKey(axis, "all_gather", "hidden"), (num_parts - 1) * rows.num_wanted * row_bytes
    if parallel.place(rank).shard > 0:
        num_bytes = (rows.num_wanted - rows.num_best) * spec.vocab_size * FLOAT32_BYTES
        yield CollectiveKey("cache", "gather", "logits"), num_bytes
        yield CollectiveKey("cache", "gather", "best"), rows.num_best * TOKEN_BYTES


def _stream(spec: ModelSpec, rows: _Rows, parallel: ParallelConfig, rank: int) -> Sent:
    """Bytes of the residual stream, to the counterpart in the stage after."""
    if parallel.next_rank(rank) is not None:
        yield CollectiveKey("pipeline", "send", "stage"), rows.num_own * spec.hidden_size * spec.dtype_bytes


def _copies(spec: ModelSpec, shape: StepShape, parallel: ParallelConfig, rank: int, block_size: int) -> Sent:
    """Bytes of blocks that move to other shards: of each, what this rank has of its layers and heads."""
    block_bytes = shard_kv_bytes_per_token(spec, shard_of(spec, parallel, rank=rank)) * block_size
    num_copies = shape.copied_from.count(parallel.place(rank).shard)
    yield CollectiveKey("cache", "all_to_all", "blocks"), num_copies * block_bytes
