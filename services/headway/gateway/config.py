"""The settings of the gateway."""

from pathlib import Path

from pydantic import Field

from headway.rpc.config import ProcessConfig


class GatewayConfig(ProcessConfig):
    """The flags of `headway-gateway`. `port` is that of the gRPC inference service."""

    http_host: str = "127.0.0.1"
    """Address to answer HTTP on."""
    http_port: int = Field(default=8000, ge=0, le=65535)
    """HTTP port; 0 takes a free one."""
    shares_port: bool = False
    """Whether other gateways of the same user listen on the HTTP port, too: the kernel shares connections out."""
    api_keys: list[str] = Field(default_factory=list)
    """Bearer tokens that clients may use, over HTTP and gRPC; none accepts every client."""
    admin_keys: list[str] = Field(default_factory=list)
    """Bearer tokens of operators, besides the stack's own token, for metrics, documentation and the cluster's state."""
    tenants: Path | None = None
    """A YAML file of tenants: their API keys and the objectives of their requests."""
    strict_fields: bool = False
    """Refuses requests with fields that have no effect, instead of naming these in a header of the answer."""
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """Larger HTTP bodies and gRPC messages are refused."""
    max_concurrency: int = Field(default=1024, ge=1)
    """Requests being answered at once; more are refused."""
    max_request_sequences: int = Field(default=256, ge=1)
    """Sequences that one request may generate: its prompts times n."""
    resume_timeout_s: float = Field(default=30.0, ge=0)
    """How long a stream whose worker died waits for another."""
    answer_overhead_s: float = Field(default=0.0, ge=0)
    """What an answer takes from the client to the group and back, besides the model: workers get so much less time."""
    leave_s: int = Field(default=0, ge=0)
    """How long requests are still taken after SIGTERM, until no proxy sends any; each answer ends its connection."""
    drain_s: int = Field(default=2, ge=0)
    """How long running requests may take to end after that; no new ones are taken then."""
    ready_without_plan: bool = False
    """Whether it is ready, too, as long as nothing is planned: models are declared later."""
