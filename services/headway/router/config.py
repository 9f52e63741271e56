"""The settings of the router."""

from typing import Literal

from pydantic import Field, field_validator

from headway.core.errors import HeadwayError
from headway.router.policies.registry import make_policy
from headway.rpc.config import ProcessConfig
from headway.store.traffic import MAX_REQUESTS, RETENTION_S


class RouterConfig(ProcessConfig):
    """The flags of `headway-router`."""

    policy: str = "balanced"
    """How a group is chosen: balanced, least-load or round-robin."""
    queue_policy: Literal["fcfs", "least-slack", "priority"] = "least-slack"
    """Who is next of those that find no room: least-slack, fcfs or priority."""
    max_group_sequences: int = Field(default=512, ge=1)
    """Sequences in flight on one group at most; four times its max_num_seqs where that is more."""
    max_queue: int = Field(default=1024, ge=0)
    """Requests per model that wait for a place in a group; more are refused."""
    queue_timeout_s: float = Field(default=30.0, ge=0)
    """How long a request waits for a place."""
    absent_timeout_s: float = Field(default=0.5, ge=0)
    """How long a new request waits for a model that no worker serves just now, or has reported yet."""
    wake_timeout_s: float = Field(default=300.0, ge=0)
    """How long a request waits for a model that was unloaded, because nobody asked for it, and is loaded again."""
    resume_timeout_s: float = Field(default=30.0, ge=0)
    """How long a stream whose worker died waits for another."""
    prefix_timeout_s: float = Field(default=0.02, gt=0)
    """How long the KV-cache service may take to say who holds a prefix."""
    load_interval_ms: int = Field(default=100, ge=1)
    """How often workers report their load."""
    max_lease_s: float = Field(default=3600.0, gt=0)
    """A lease that was not released by then is taken for lost."""
    gateway_grace_s: float = Field(default=3.0, ge=0)
    """A gateway without membership for this long is gone, and its leases with it."""
    answer_overhead_s: float = Field(default=0.0, ge=0)
    """What an answer takes from the client to the group and back, besides the model."""
    traffic_retention_s: float = Field(default=RETENTION_S, gt=0)
    """How long the record of arrivals is kept."""
    traffic_max_requests: int = Field(default=MAX_REQUESTS, ge=1)
    """Arrivals on record beyond which the oldest hours are forgotten."""

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        try:
            make_policy(name)
        except HeadwayError as error:
            raise ValueError(str(error)) from None
        return name
