"""Estimates the memory that a worker needs beside weights and KV blocks."""

from headway.core.cluster import Hardware
from headway.core.held_memory import runtime_bytes_of
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.shard import ModelShard
from headway.planner.serving.batching import Batching

_FLOAT_BYTES = 4
_NUM_LOGIT_COPIES = 3  # as computed, processed, and sorted or as probabilities
_SKETCH_ROW_BYTES = 16  # beside a byte for each element


def reserve(
    spec: ModelSpec, shard: ModelShard, parallel: ParallelConfig, *, leads: bool, hardware: Hardware, batching: Batching
) -> int:
    """Bytes of the runtime itself, the widest activations of one step, and the logits of every sequence; on a CPU also
    of the sketch of the output head that greedy tokens are found with.

    Where the vocabulary or a step's tokens are split every worker has a part of the logits; the leader gathers them and
    works on the whole. Between stages the hidden states of a batch are kept until they have
    left, for each batch that is under way. Cache shards see the queries, keys and values of all tokens, and send what
    their own keys say of each.
    """
    num_tokens = batching.max_num_batched_tokens
    num_own_tokens = -(-num_tokens // parallel.cp) if parallel.cp_ffn == "data" else num_tokens
    num_floats = num_own_tokens * (4 * spec.hidden_size + _mlp_width(spec, shard))
    num_floats += num_tokens * 2 * len(shard.query_heads) * spec.head_dim
    if parallel.cp > 1:
        num_floats += num_tokens * _exchanged_width(spec, shard, parallel)
    if parallel.pp > 1:
        num_floats += parallel.pp * num_own_tokens * spec.hidden_size
    num_floats += batching.max_num_seqs * _num_logits(spec, shard, parallel, leads=leads)
    sketch_bytes = len(shard.head) * ((spec.embedding_dim or spec.hidden_size) + _SKETCH_ROW_BYTES)
    return runtime_bytes_of(hardware) + num_floats * _FLOAT_BYTES + (sketch_bytes if hardware.device == "cpu" else 0)


def _mlp_width(spec: ModelSpec, shard: ModelShard) -> int:
    """Number of floats that a token keeps in a layer's MLP; with experts also what each of its own made of it."""
    if (experts := spec.experts) is None:
        return 3 * len(shard.mlp)
    width = max(len(shard.mlp), experts.intermediate_size, len(shard.shared_mlp))
    return 3 * width + (experts.num_experts_per_tok + 1) * spec.hidden_size


def _exchanged_width(spec: ModelSpec, shard: ModelShard, parallel: ParallelConfig) -> int:
    """Number of floats that a token keeps while cache shards exchange: gathered queries, keys and values, and the
    answers with the logarithm of their weight, those that go and those that come."""
    num_sharing = parallel.cp if parallel.cp_ffn == "tensor" else 1
    num_queries, num_keys = len(shard.query_heads) * num_sharing, len(shard.kv_heads) * num_sharing
    return (num_queries + 2 * num_keys) * spec.head_dim + 2 * num_queries * (spec.head_dim + 1)


def _num_logits(spec: ModelSpec, shard: ModelShard, parallel: ParallelConfig, *, leads: bool) -> int:
    """Number of logits that a worker keeps for each sequence."""
    is_gathered = len(shard.head) < spec.vocab_size or parallel.cp > 1
    num_copies = _NUM_LOGIT_COPIES + is_gathered if leads else 0
    return num_copies * spec.vocab_size + (len(shard.head) if is_gathered else 0)
