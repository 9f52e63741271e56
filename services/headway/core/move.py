"""Running requests that move from worker to worker."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTarget:
    """A worker that takes sequences over. `endpoint` is host:port of its gRPC server."""

    worker_id: str
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMove:
    """Sequences of a request that have moved.

    Attributes:
        worker_id: where they ran before.
        num_blocks, num_bytes: that were brought to where they go on.
        recompute_reason: why those could not be brought, so that all tokens are computed anew there; empty if they
            could.
    """

    worker_id: str
    num_sequences: int
    num_blocks: int
    num_bytes: int
    recompute_reason: str = ""
