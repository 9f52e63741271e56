"""Settings of a worker process."""

from typing import Literal

from pydantic import Field

from headway.rpc.config import ProcessConfig


class WorkerConfig(ProcessConfig):
    """`python -m headway.worker`."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs."""
    num_threads: int = Field(default=1, ge=1)
    """Compute threads on the CPU."""
    memory_bytes: int = Field(default=4 * 1024**3, ge=1)
    """What weights, KV blocks and workspace may use."""
    group_id: str = ""
    """Group that this worker belongs to; made from the member id when empty."""
