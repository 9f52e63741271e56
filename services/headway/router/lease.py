"""The router's answer, and how it ends."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from headway.core.latency import LatencyModel
from headway.core.move import MoveTarget
from headway.core.prefix_source import PrefixSource
from headway.core.slo import Slo
from headway.router.interference import Commitment
from headway.router.place import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A request's place in a group.

    Attributes:
        attempt: of the request, that has got it.
        num_sequences: that it stands for in the group's load.
        num_prefill_tokens: prompt tokens that the group has to compute for it.
        num_cached_tokens: prompt tokens that the group is believed to hold.
        leased_at_s: by the router's clock.
        reason: why this group, in words.
        is_sole_replica: whether the next request of the model would get the same answer.
        ttft_s, tpot_s, e2e_s: predicted, from the lease on; None where no latency model is known.
        latency: of the group's steps, on which those rest.
        overhead_s: that the first and the last of them have besides the model.
        waited_s: from the request's arrival at the gateway to the lease.
        decode_group_id, decode_target: where the sequences are to go on once their prompt is computed, the group and
            its leader; '' and None: they stay.
        source: who holds more of the prompt, to be fetched first; None for nobody, or where that takes longer.
        slack_s: for how long it may still wait at the group before it misses an objective; infinite where it has none.
        tenant, tenant_weight: of the request.
        commitment: what the group owes it, of a model that generates; None where nothing is predicted.
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
    latency: LatencyModel | None = None
    overhead_s: float = 0.0
    waited_s: float = 0.0
    is_sole_replica: bool = False
    decode_group_id: str = ""
    decode_target: MoveTarget | None = None
    source: PrefixSource | None = None
    slack_s: float = math.inf
    commitment: Commitment | None = None
    tenant: str = ""
    tenant_weight: float = 1.0
    attempt: int = 0

    @property
    def place(self) -> Place:
        return self.group_id, self.model

    @property
    def decode_place(self) -> Place:
        return self.decode_group_id, self.model

    def late_s(self, ttft_s: float, *, latency: LatencyModel | None) -> float | None:
        """By how much the first token came later than the steps predict, where it took `ttft_s` from the arrival on.

        None where nothing was predicted, and where another lease brought it.

        Args:
            latency: of the steps as they are known by now: what was wrong about them then is not late again.
        """
        if self.ttft_s is None or self.latency is None or latency is None or ttft_s < self.waited_s:
            return None
        now = _times(latency, self.latency, num_prefill_tokens=self.num_prefill_tokens)
        return ttft_s - self.waited_s - (self.ttft_s - self.overhead_s) * now

    def slowness(self, release: "Release", *, latency: LatencyModel) -> float | None:
        """How many times as long as the steps predict the tokens after the first took, beside all that were let in
        after this request.

        None where nothing was predicted or promised, where the group did not compute all of them, and where there is
        no such token.

        Args:
            latency: see `late_s`.
        """
        num_gaps = release.num_output_tokens / self.num_sequences - 1
        if self.commitment is None or self.latency is None or not self.slo or self.decode_target is not None:
            return None  # what was let in after it is known of those that have an objective
        if release.tpot_s is None or num_gaps <= 0:
            return None
        foretold_s = self.commitment.step_s + self.commitment.borne_s / num_gaps
        return release.tpot_s / (foretold_s * _times(latency, self.latency, num_prefill_tokens=0))


class LeaseOutcome(StrEnum):
    """How a lease ended."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"
    ERROR = "error"
    MOVED = "moved"  # the request goes on under another lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The gateway's last word on a lease.

    Attributes:
        lease_id: empty where the gateway gave up before it learned of the lease; then gateway, request and attempt name
            it, or any of the request's attempts where that is 0.
        ttft_s, tpot_s, e2e_s: measured; None if never reached.
        num_output_tokens: of all its sequences.
        slo: what it was measured against; empty for the lease's own.
    """

    outcome: LeaseOutcome
    lease_id: str = ""
    gateway_id: str = ""
    request_id: str = ""
    attempt: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    num_output_tokens: int = 0
    slo: Slo = field(default_factory=Slo)


def _times(now: LatencyModel, then: LatencyModel, *, num_prefill_tokens: int) -> float:
    """How many times as long as they were believed to take steps take as they are known by now."""
    now_s, then_s = (
        each.step_s(prefill_tokens=num_prefill_tokens, num_decodes=1, context_tokens=0) for each in (now, then)
    )
    return now_s / then_s
