"""Prefixes that one worker holds and another one wants."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSource:
    """A worker that holds blocks of a prompt which another one is to compute.

    Attributes:
        endpoint: host:port of its gRPC server.
        num_blocks: leading blocks of the prompt that it is believed to hold.
        timeout_s: after which what has not come is computed.
    """

    worker_id: str
    endpoint: str
    num_blocks: int
    timeout_s: float
