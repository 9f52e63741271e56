"""The limits and policies of one engine."""

from dataclasses import dataclass
from typing import Literal, get_args

from headway.core.errors import InvalidArgumentError
from headway.core.line import QueuePolicy

PreemptionMode = Literal["auto", "recompute", "swap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Memory and batch limits of one engine; the serving plan sets them.

    Attributes:
        num_blocks: KV blocks in the pool.
        block_size: tokens per block.
        max_num_seqs: sequences that run at once.
        num_micro_batches: batches under way at once, one for each stage of a pipeline; a sequence decodes in one of
            them at a time.
        runs_ahead: start a batch while the one before is computed, with the next tokens of the same sequences; for
            runners that take the tokens between the two from where they were sampled. Only without a pipeline.
        max_num_batched_tokens: tokens per step, decodes and prefill together; at least `max_num_seqs`, so that
            every running sequence decodes in every step.
        max_num_prefill_tokens: prefill tokens per step at most, or None for all that the decodes leave. Smaller
            chunks make decodes steadier and first tokens later. Micro-batches have equal parts of them.
        max_model_len: prompt and output tokens of one sequence at most.
        enable_prefix_cache: keep full blocks after their sequences end and share them by content.
        vocab_size: token ids lie below it; one that does not would end the whole batch.
        eos_token_ids: end a sequence, unless its request ignores them.
        watermark: fraction of the blocks that admission leaves available to the sequences already running.
        cache_salt: parent of every first block's hash; prompts share blocks only under one salt.
        num_logged_events: block events kept for readers that lag behind.
        num_host_blocks: KV blocks of the host tier; 0 for none.
        preemption: how a group gives way: "recompute" drops its blocks, "swap" moves them to the host tier where there
            is room, "auto" takes what was measured to be cheaper.
        num_draft_tokens: tokens guessed ahead per sequence and step at most (speculative decoding); 0 turns it off.
        queue_policy: whose turn it is to be admitted, and who gives way where memory runs out: the last in line.
        draft_ngram: longest run of tokens that is looked up in the sequence to guess what follows.
        num_shards: ranks that the cache is split over; it divides `num_blocks` and `num_host_blocks`, which are totals.
            Shard s has the blocks [s * num_blocks / num_shards, (s + 1) * num_blocks / num_shards).
        rebalance_every_steps: steps between two looks at how even the shards are.
        rebalance_threshold: blocks move once a shard has so many times what its weight gives it; 1 is even.
        max_rebalance_moves: blocks that move in one step at most.
    """

    num_blocks: int
    max_model_len: int
    block_size: int = 16
    max_num_seqs: int = 64
    num_micro_batches: int = 1
    runs_ahead: bool = False
    max_num_batched_tokens: int = 1024
    max_num_prefill_tokens: int | None = None
    enable_prefix_cache: bool = True
    vocab_size: int = 2**31
    eos_token_ids: tuple[int, ...] = ()
    watermark: float = 0.01
    cache_salt: bytes = b""
    num_logged_events: int = 65536
    num_host_blocks: int = 0
    preemption: PreemptionMode = "auto"
    queue_policy: QueuePolicy = QueuePolicy.FCFS
    num_draft_tokens: int = 0
    draft_ngram: int = 3
    num_shards: int = 1
    rebalance_every_steps: int = 16
    rebalance_threshold: float = 1.1
    max_rebalance_moves: int = 8

    def __post_init__(self) -> None:
        for name in (
            "num_blocks",
            "block_size",
            "max_num_seqs",
            "num_micro_batches",
            "vocab_size",
            "num_logged_events",
            "draft_ngram",
        ):
            _require_at_least(1, name, getattr(self, name))
        for name in ("num_shards", "rebalance_every_steps", "rebalance_threshold"):
            _require_at_least(1, name, getattr(self, name))
        for name in ("num_blocks", "num_host_blocks"):
            _require_multiple(self.num_shards, name, getattr(self, name))
        for name in ("num_host_blocks", "num_draft_tokens", "max_rebalance_moves"):
            _require_at_least(0, name, getattr(self, name))
        _require_at_least(2, "max_model_len", self.max_model_len)
        _require_at_least(self.max_num_seqs, "max_num_batched_tokens", self.max_num_batched_tokens)
        if self.max_num_prefill_tokens is not None:
            _require_at_least(1, "max_num_prefill_tokens", self.max_num_prefill_tokens)
        if self.runs_ahead and self.num_micro_batches > 1:
            raise InvalidArgumentError("runs_ahead is for engines with one micro-batch.", field="runs_ahead")
        if self.preemption not in get_args(PreemptionMode):
            modes = ", ".join(get_args(PreemptionMode))
            raise InvalidArgumentError(
                f"preemption is '{self.preemption}', it must be one of {modes}.", field="preemption"
            )
        if not 0 <= self.watermark < 1:
            raise InvalidArgumentError(f"watermark is {self.watermark}, it must lie in [0, 1).", field="watermark")

    @property
    def max_sequence_len(self) -> int:
        """Tokens of one sequence at most, also where the pool is too small for `max_model_len`."""
        return self.max_sequence_len_within(self.num_blocks)

    def max_sequence_len_within(self, num_blocks: int) -> int:
        """The same, where a sequence can have `num_blocks` at most.

        A sequence that is alone can fill every block, and its last token needs no block: nothing follows it.
        """
        return min(self.max_model_len, num_blocks * self.block_size + 1)

    def shard_of(self, block: int, *, is_on_host: bool = False) -> int:
        """The shard that a block lies on, of the device's pool or of the host tier."""
        num_blocks = self.num_host_blocks if is_on_host else self.num_blocks
        return block // (num_blocks // self.num_shards)

    @property
    def max_num_prefill_tokens_per_batch(self) -> int:
        return -(-(self.max_num_prefill_tokens or self.max_num_batched_tokens) // self.num_micro_batches)

    @property
    def num_watermark_blocks(self) -> int:
        return int(self.num_blocks * self.watermark)


def _require_multiple(of: int, name: str, value: int) -> None:
    if value % of:
        raise InvalidArgumentError(f"{name} is {value}, it must be a multiple of num_shards = {of}.", field=name)


def _require_at_least(minimum: int, name: str, value: float) -> None:
    if value < minimum:
        raise InvalidArgumentError(f"{name} is {value}, it must be at least {minimum}.", field=name)
