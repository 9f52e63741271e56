"""Batches without users, to measure how long a step takes."""

from array import array

from headway.core.request import SamplingParams
from headway.engine.batch import ScheduledSequence, StepBatch
from headway.engine.sequence import Sequence

# Sequences share blocks beyond this: more than any processor caches, so reading them costs the same.
_MAX_SCRATCH_BYTES = 256 << 20


def synthetic_batch(
    vocab_size: int,
    *,
    block_size: int,
    bytes_per_block: int,
    prefill_tokens: int,
    num_decodes: int,
    context_tokens: int,
    num_shards: int = 1,
) -> tuple[StepBatch, int]:
    """A greedy step of decodes and one prompt chunk, each after `context_tokens`, and how many blocks it runs on.

    Args:
        bytes_per_block: of keys and values, on one processor.
        num_shards: processors that share the cache; each has as many blocks, and sequences lie on all of them in turns.
    """
    parts = [(context_tokens, 1)] * num_decodes + [(context_tokens, prefill_tokens)] * (prefill_tokens > 0)
    lengths = [-(-(num_computed + num_new) // block_size) for num_computed, num_new in parts]
    num_scratch = max(1, _MAX_SCRATCH_BYTES // bytes_per_block)
    num_blocks = min(-(-sum(lengths) // num_shards), num_scratch)
    blocks = [shard * num_blocks + block for block in range(num_blocks) for shard in range(num_shards)]
    scheduled, next_block = [], 0
    for (num_computed, num_new), length in zip(parts, lengths, strict=True):
        sequence = Sequence(
            request_id="synthetic",
            token_ids=[token % vocab_size for token in range(num_computed + num_new)],
            num_prompt_tokens=num_computed + num_new,
            sampling=SamplingParams(temperature=0.0),
            arrival_s=0.0,
            num_computed_tokens=num_computed,
            block_table=array("i", [blocks[index % len(blocks)] for index in range(next_block, next_block + length)]),
        )
        scheduled.append(ScheduledSequence(sequence, num_new, samples=True))
        next_block += length
    return StepBatch(scheduled, num_tokens=sum(num_new for _, num_new in parts)), num_blocks
