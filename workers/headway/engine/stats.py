"""The engine's figures, for metrics and load reports."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """The engine as it stands, and its latest step.

    Attributes:
        num_steps: steps since the start.
        num_running, num_waiting: sequences now.
        num_context_tokens: of the running sequences.
        num_pending_prefill_tokens: of running and waiting sequences, still to be computed.
        num_preemptions: since the start.
        num_used_blocks, num_cached_blocks, num_free_blocks: referenced; unreferenced but still shareable; empty.
            They add up to the pool.
        num_prefix_queries, num_prefix_hits: tokens looked up in the prefix cache, and found, since the start; each
            sequence counts once, however often it is preempted.
        num_prefill_tokens, num_decode_tokens: computed by the latest step.
        duration_s: of the latest step.
    """

    num_steps: int
    num_running: int
    num_waiting: int
    num_context_tokens: int
    num_pending_prefill_tokens: int
    num_preemptions: int
    num_used_blocks: int
    num_cached_blocks: int
    num_free_blocks: int
    num_prefix_queries: int
    num_prefix_hits: int
    num_prefill_tokens: int
    num_decode_tokens: int
    duration_s: float
