"""What a worker is told to load."""

from dataclasses import dataclass
from pathlib import Path

from headway.engine.config import PreemptionMode


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """What the controller wants this worker to serve; the assignment of a plan."""

    plan_id: str
    model: str
    directory: Path
    dtype: str
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_cache: bool
    max_num_prefill_tokens: int | None = None
    num_host_blocks: int = 0
    preemption: PreemptionMode = "auto"
    num_draft_tokens: int = 0
    quantization: str = ""
