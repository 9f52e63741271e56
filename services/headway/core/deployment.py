"""What a user asks `headway up` for: models, workers and the options of the processes that serve them."""

from dataclasses import dataclass, field

from headway.core.plan import EngineLimits, ModelDeployment


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """Where and how clients are answered.

    Attributes:
        host, port: HTTP address; port 0 takes a free one.
        grpc_port: of the gRPC inference service; 0 takes a free one.
        api_keys: accepted bearer tokens; empty accepts every client.
        max_body_bytes: larger HTTP bodies are refused with 413.
        max_concurrency: requests being answered at once; more are refused with 429.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int = 0
    api_keys: tuple[str, ...] = ()
    max_body_bytes: int = 8 * 1024 * 1024
    max_concurrency: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How worker processes are launched.

    Attributes:
        count: worker processes.
        device: 'cpu' or 'cuda'.
        num_threads: compute threads of each; 0 shares the machine's cores evenly.
        memory_bytes: what each may use; 0 shares the machine's available memory.
    """

    count: int = 1
    device: str = "cpu"
    num_threads: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The desired stack. The controller makes processes match it, the planner makes the plan for it.

    Attributes:
        profile: whether models are profiled once they serve (predictions stay estimates otherwise).
        otlp_endpoint: OpenTelemetry collector; None turns tracing off.
    """

    models: tuple[ModelDeployment, ...]
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    gateway: GatewayOptions = field(default_factory=GatewayOptions)
    limits: EngineLimits = field(default_factory=EngineLimits)
    profile: bool = True
    log_level: str = "info"
    otlp_endpoint: str | None = None
