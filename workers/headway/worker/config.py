"""Settings of a worker process."""

from typing import Literal

from pydantic import Field

from headway.core.engine_kind import EngineKind
from headway.rpc.config import ProcessConfig


class WorkerConfig(ProcessConfig):
    """Settings of a worker process: the flags of `python -m headway.worker`."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs."""
    cuda_graphs: bool = True
    """Whether decode steps on a GPU are captured once and replayed; without, each kernel is launched by itself."""
    overlap_steps: bool = True
    """Whether a step on a GPU is launched while the one before runs; without, once its tokens are on the host."""
    num_threads: int = Field(default=1, ge=1)
    """Compute threads on the CPU."""
    memory_bytes: int = Field(default=4 * 1024**3, ge=1)
    """What weights, KV blocks and workspace may use."""
    num_devices: int = Field(default=1, ge=1)
    """Devices that it has, over which vLLM splits each layer. Threads and memory are those of one."""
    engine: EngineKind = EngineKind.HEADWAY
    """What computes its models."""
    engine_url: str = ""
    """Of the server that it stands in for, with the engine vllm-server."""
    engine_model: str = ""
    """Headway's name of the model that the server serves."""
    engine_events: str = ""
    """Where the server publishes the events of its cache, tcp://HOST:PORT; empty where it does not."""
    emulate: str = ""
    """Device of the catalogue that the worker takes the time of, computing nothing; empty to compute."""
    queue_policy: Literal["fcfs", "least-slack", "priority"] = "least-slack"
    """Whose request begins next: least-slack, fcfs or priority. Of a model that generates, the last of those that run
    gives way when memory runs out."""
    group_id: str = ""
    """Group that this worker belongs to; made from the member id when empty."""
    pool: str = ""
    """Pool that this worker is of, which models may name."""
