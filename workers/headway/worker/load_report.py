"""What a worker tells the router about itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """A worker's load at one moment; field names are those of `WatchLoadResponse`."""

    model: str
    state: str
    num_running: int = 0
    num_waiting: int = 0
    num_pending_prefill_tokens: int = 0
    num_context_tokens: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    max_model_len: int = 0
    block_size: int = 0
    num_preemptions: int = 0
    num_prefix_hit_tokens: int = 0
    num_prefix_query_tokens: int = 0
