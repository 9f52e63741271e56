"""A request's turn to be placed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.line import Rank
from headway.router.request import RoutingRequest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueuedRequest:
    """A request, and what was found out about it when it came.

    Attributes:
        cached_blocks: leading blocks of its prompt that workers hold, by worker id.
        arrived_s: at the gateway, by the router's clock.
        failed_at_s: it was on a worker that failed it no earlier than this; an excluded worker whose stream began
            later is a new process, and counts again, as one does that has loaded the model since.
        rank: its place among those that wait for the model.
    """

    request: RoutingRequest
    arrived_s: float
    failed_at_s: float
    cached_blocks: Mapping[str, int] = field(default_factory=dict)
    rank: Rank = ()
