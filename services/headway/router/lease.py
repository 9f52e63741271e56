"""The router's answer, and how it ends."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from headway.core.move import MoveTarget
from headway.core.prefix_source import PrefixSource
from headway.core.slo import Slo
from headway.router.interference import Commitment
from headway.router.place import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A request's place in a group.

    Attributes:
        num_sequences: the sequences that it stands for in the group's load.
        num_prefill_tokens: prompt tokens that the group has to compute for it.
        num_cached_tokens: prompt tokens that the group is believed to hold.
        leased_at_s: when it was given, in the router's clock's seconds.
        reason: why this group, in words.
        is_sole_replica: whether the next request of the model would get the same answer.
        ttft_s, tpot_s, e2e_s: the predicted latencies; None where no latency model is known.
        decode_group_id, decode_target: the group, and its leader, where sequences go on once their prompt is computed;
            '' and None where they stay.
        source: who holds more of the prompt, to be fetched first; None for nobody, or where that takes longer.
        slack_s: seconds that it may still wait at the group before it misses an objective; infinite where it has none.
        commitment: what the group owes it, for a model that generates; None where nothing is predicted.
    """

    lease_id: str
    request_id: str
    gateway_id: str
    model: str
    group_id: str
    worker_id: str
    endpoint: str
    num_sequences: int
    num_prefill_tokens: int
    num_cached_tokens: int
    leased_at_s: float
    slo: Slo
    reason: str
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None = None
    is_sole_replica: bool = False
    decode_group_id: str = ""
    decode_target: MoveTarget | None = None
    source: PrefixSource | None = None
    slack_s: float = math.inf
    commitment: Commitment | None = None

    @property
    def place(self) -> Place:
        return self.group_id, self.model

    @property
    def decode_place(self) -> Place:
        return self.decode_group_id, self.model


class LeaseOutcome(StrEnum):
    """How a request ended that had a lease."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"
    ERROR = "error"
    MOVED = "moved"  # the request goes on under another lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The gateway's last message about a lease.

    Attributes:
        lease_id: empty where the gateway gave up before it learned of the lease; then request and gateway name it.
        ttft_s, tpot_s, e2e_s: the measured latencies; None for those never reached.
        num_output_tokens: the output tokens of all its sequences.
        slo: the objectives that it was measured against; empty for the lease's own.
    """

    outcome: LeaseOutcome
    lease_id: str = ""
    gateway_id: str = ""
    request_id: str = ""
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    num_output_tokens: int = 0
    slo: Slo = field(default_factory=Slo)
