"""The messages between the gateway and the router, as plain types."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from headway.core.move import MoveTarget
from headway.core.prefix_source import PrefixSource
from headway.core.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """A request for a place for `num_sequences` sequences of one prompt.

    Attributes:
        request_id: unique; asking again ends the lease before.
        block_hashes: of the prompt's full blocks; empty where they make no difference.
        excluded_worker_ids: workers that failed this request.
        resumed: its worker died under it, or had it moved.
        preferred_worker_id: the worker to which it was moved; empty for none.
        stays: it cannot move.
        priority: the lowest goes first where requests wait by priority.
        arrived_s: at the gateway, by the monotonic clock; its objectives count from then.
        tenant: who asks; empty for nobody in particular.
        tenant_weight: the tenant's part beside other tenants.
        traceparent: W3C context; empty when tracing is off.
        adapter: key of the one that changes the model; empty for none.
    """

    request_id: str
    model: str
    num_prompt_tokens: int
    max_output_tokens: int
    num_sequences: int
    slo: Slo
    arrived_s: float
    block_hashes: tuple[bytes, ...] = ()
    excluded_worker_ids: tuple[str, ...] = ()
    resumed: bool = False
    preferred_worker_id: str = ""
    stays: bool = False
    priority: int = 0
    tenant: str = ""
    tenant_weight: float = 1.0
    traceparent: str = ""
    adapter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A place on the worker at `endpoint`; `reason` says in words why there.

    Attributes:
        is_sole_replica: whether the next request of the model, if it has no SLO, would hear the same.
        decode_target: where the sequences go on once their prompt is computed; None: they stay.
        source: where the worker is to fetch the prompt's first blocks; None for nowhere.
        slack_s: for how long the request may still wait there before it misses an objective; infinite for none.
    """

    lease_id: str
    worker_id: str
    endpoint: str
    reason: str
    is_sole_replica: bool = False
    decode_target: MoveTarget | None = None
    source: PrefixSource | None = None
    slack_s: float = math.inf


class LeaseOutcome(StrEnum):
    """How a lease ended, as the gateway reports it to the router."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"
    ERROR = "error"
    MOVED = "moved"  # the request goes on under another lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The last word on a lease, with measured latencies (None if never reached) and token counts."""

    lease_id: str
    outcome: LeaseOutcome
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    slo: Slo = field(default_factory=Slo)


class Router(Protocol):
    """Gives places and takes them back."""

    async def route(self, request: PlaceRequest) -> Lease:
        """A place; cancelling takes the request back. Raises the router's HeadwayError where it refuses."""

    def note_first_token(self, lease_id: str, *, ttft_s: float) -> None:
        """Tells when the first token of a request with objectives came; returns at once."""

    def release(self, release: Release) -> None:
        """Returns at once; the router hears of it soon."""
