"""A model that generates on a group: what its engine may do, and how long its steps take."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.core.latency import LatencyModel
from headway.core.plan.serving import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMemory:
    """The memory that a model takes on the devices of its group, and the memory that there is.

    Attributes:
        memory_bytes: the memory of each device, for all models of the group.
        fixed_bytes: the bytes of weights and activations, on each device of every stage.
        block_bytes: the bytes of a KV block, on each device of every stage.
        least_blocks: the blocks that hold the longest sequence that has to be served.
        token_bytes: the bytes that a token keeps on all devices together; models share the rest in this proportion.
    """

    memory_bytes: int
    fixed_bytes: tuple[int, ...]
    block_bytes: tuple[int, ...]
    least_blocks: int
    token_bytes: int

    @property
    def least_bytes(self) -> tuple[int, ...]:
        """The least memory that the model needs, on each device of every stage."""
        return tuple(
            fixed + self.least_blocks * block for fixed, block in zip(self.fixed_bytes, self.block_bytes, strict=True)
        )

    def num_blocks(self, room_bytes: Sequence[int]) -> int:
        """Returns the blocks that fit into this memory on each device of every stage; never fewer than the model must
        have.
        """
        rooms = zip(room_bytes, self.fixed_bytes, self.block_bytes, strict=True)
        return max(self.least_blocks, min((room - fixed) // block for room, fixed, block in rooms))


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationProfile:
    """The engine of a model that generates, as a plan sizes it for a group of its own; see `Assignment`.

    Attributes:
        latency: the latency model of its steps, from which the router predicts.
        stage_latencies: the latency model of each pipeline stage; as many batches are in flight as there are stages.
        num_blocks: the KV blocks that fit beside weights and activations.
        max_num_prefill_tokens: the most prefill tokens of a step; None for all that the decodes leave.
        max_model_len: the most tokens that a request's prompt and output may have together.
        watermark: the share of the blocks that admission leaves to running sequences.
        memory: the memory from which its blocks follow beside other models; None where unknown, so that it needs a
            group
            to itself.
    """

    latency: LatencyModel
    stage_latencies: tuple[LatencyModel, ...]
    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 1024
    max_num_prefill_tokens: int | None = None
    max_model_len: int = 2**31 - 1
    watermark: float = 0.01
    memory: CacheMemory | None = None

    @property
    def num_cache_tokens(self) -> int:
        return self.num_blocks * self.block_size

    @property
    def longest(self) -> int:
        """Prompt and output tokens of a request that it can serve; the last token needs no block."""
        return min(self.max_model_len, self.num_cache_tokens + 1)

    def with_blocks(self, num_blocks: int) -> "GenerationProfile":
        """Returns the profile with at most `num_blocks` blocks."""
        max_model_len = min(self.max_model_len, num_blocks * self.block_size)
        return replace(self, num_blocks=min(self.num_blocks, num_blocks), max_model_len=max_model_len)

    def alone_s(self, num_prompt_tokens: float) -> tuple[float, float]:
        """TTFT and TPOT of a prompt of that length on the idle group."""
        chunk, num_tokens = self.max_num_prefill_tokens or self.max_num_batched_tokens, round(num_prompt_tokens)
        ttft_s = sum(stage.prefill_s(num_tokens, chunk_tokens=chunk) for stage in self.stage_latencies)
        tpot_s = sum(stage.decode_s(num_decodes=1, context_tokens=num_tokens) for stage in self.stage_latencies)
        return ttft_s, tpot_s

    def full_stage_s(self, num_prompt_tokens: float, num_output_tokens: float) -> tuple[float, ...]:
        """Returns the seconds that a request of mean lengths takes of each stage's time, where as many run as the
        engine and its blocks allow.
        """
        num_tokens = num_prompt_tokens + num_output_tokens / 2
        num_seqs = max(1.0, min(self.max_num_seqs, self.num_cache_tokens / max(num_tokens, 1.0)))
        share = num_seqs / len(self.stage_latencies)
        return tuple(
            stage.prefill_s(round(num_prompt_tokens), chunk_tokens=self.max_num_batched_tokens) - stage.base_s
            + num_output_tokens * (stage.base_s / share + stage.per_decode_s + stage.per_context_token_s * num_tokens)
            for stage in self.stage_latencies
        )  # fmt: skip


def generation_profile_of(assignment: Assignment) -> GenerationProfile:
    """Returns the profile of a model that generates, from its assignment."""
    return GenerationProfile(
        latency=assignment.prediction.latency,
        stage_latencies=assignment.pipeline_latencies,
        num_blocks=assignment.num_blocks,
        block_size=assignment.block_size,
        max_num_seqs=assignment.max_num_seqs,
        max_num_batched_tokens=assignment.max_num_batched_tokens,
        max_num_prefill_tokens=assignment.max_num_prefill_tokens,
        max_model_len=assignment.max_model_len,
    )
