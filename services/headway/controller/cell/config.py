"""Settings of a cell."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from headway.core.engine_kind import EngineKind
from headway.rpc.catalogue_config import CatalogueConfig


class CellConfig(CatalogueConfig):
    """The flags of `python -m headway.controller.cell`. The cell's name is `member-id`, its workers' are that with -0,
    -1, ... behind it."""

    workers: int = Field(default=1, ge=1, le=64)
    """Worker processes to keep running; with `cuda` each has a GPU of its own."""
    pool: str = ""
    """Pool that the workers are of, which models may name."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where models run."""
    num_threads: int = Field(default=0, ge=0)
    """Compute threads of each worker on the CPU; 0 shares the cores evenly."""
    memory_bytes: int = Field(default=0, ge=0)
    """What weights, KV blocks and workspace of each worker may use; 0 takes all of a GPU, or an even share."""
    engine: EngineKind = EngineKind.HEADWAY
    """What the workers compute with; the cell's own interpreter has to have it, unless it is vllm-server."""
    num_devices: int = Field(default=1, ge=1)
    """Devices of each worker with vllm, over which it splits each layer; threads and memory are those of one."""
    engine_url: str = ""
    """Of the server that the one worker stands in for, with the engine vllm-server."""
    engine_model: str = ""
    """Headway's name of the model that the server serves."""
    engine_events: str = ""
    """Where the server publishes the events of its cache, tcp://HOST:PORT; empty where it does not."""
    emulate: str = ""
    """Device of the catalogue that the workers take the time of, computing nothing; empty to compute."""
    queue_policy: Literal["fcfs", "least-slack", "priority"] = "least-slack"
    """Whose request begins next: least-slack, fcfs or priority."""
    first_worker_port: int = Field(default=0, ge=0, le=65535)
    """gRPC port of the first worker, the others take those after it; 0 takes free ones."""
    first_worker_metrics_port: int = Field(default=0, ge=0, le=65535)
    """Port of the first worker's /metrics, the others take those after it; 0 takes free ones."""
    drain_s: float = Field(default=60.0, ge=0)
    """How long running requests may take to move or end after SIGTERM."""
    ready_without_plan: bool = False
    """Whether it is ready, too, as long as nothing is planned: models are declared later."""
    log_dir: Path = Path("/tmp/headway-logs")
    """Directory of the workers' logs, which the cell copies to its output."""
