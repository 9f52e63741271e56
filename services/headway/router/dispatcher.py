"""Routing decisions: state in, a lease out. No I/O, and time comes from a clock that may be virtual."""

import math
from collections.abc import Callable
from enum import Enum, auto

from headway.core.fair_share import FairShare
from headway.core.line import QueuePolicy, Rank, rank_of
from headway.core.move import MoveTarget
from headway.core.slo import Slo
from headway.router.admission import admit
from headway.router.candidate_group import NOMINAL, CandidateGroup
from headway.router.candidates import Candidates
from headway.router.decision import choose, explain
from headway.router.fleet import Fleet
from headway.router.interference import commit
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.lease_table import LeaseTable
from headway.router.lengths import OutputLengths
from headway.router.policies.policy import Policy
from headway.router.queued_request import QueuedRequest
from headway.router.request import RoutingRequest


class Shortage(Enum):
    """The reason why a request has no place yet."""

    NO_GROUP = auto()  # none serves its model just now
    NO_ROOM = auto()  # all that could are full, or somebody there would be late for it


class Dispatcher:
    """Places requests in groups.

    Attributes:
        fleet: the groups.
        lease_table: the leases.
        fair_share: between the tenants of those that wait and of those that have leases.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        max_group_sequences: int,
        instance_id: str,
        clock: Callable[[], float],
        queue_policy: QueuePolicy = QueuePolicy.FCFS,
        answer_overhead_s: float = 0.0,
    ) -> None:
        """`instance_id` keeps lease ids apart from those of routers before and beside this one. `answer_overhead_s`
        is what an answer takes from the client to the group and back, besides the model.
        """
        self.fleet = Fleet()
        self.fair_share = FairShare()
        self.lease_table = LeaseTable(self.fair_share)
        self._policy = policy
        self._queue_policy = queue_policy
        self._instance_id = instance_id
        self._clock = clock
        self._lengths = OutputLengths()
        self._num_decisions = 0
        self._candidates = Candidates(
            self.fleet,
            self.lease_table,
            lengths=self._lengths,
            policy=policy,
            queue_policy=queue_policy,
            max_group_sequences=max_group_sequences,
            answer_overhead_s=answer_overhead_s,
            clock=clock,
        )

    def supersede(self, request: RoutingRequest) -> Lease | None:
        """Ends the lease that a request had, since it asks for another."""
        lease = self.lease_table.close_request(request.gateway_id, request.request_id)
        if lease is not None:
            self.vacate(lease)
        return lease

    def vacate(self, lease: Lease, *, is_complete: bool = False) -> None:
        """Takes a lease that has ended off its group's line; no change where it is off already."""
        group = self.fleet.group(lease.worker_id)
        if group is not None:
            group.predictor.leave(lease.lease_id, now_s=self._clock(), is_complete=is_complete)

    def has_group(self, queued: QueuedRequest) -> bool:
        """Whether any group could serve the request, now or when it has room."""
        return bool(self._candidates.find(queued))

    def rank(self, request: RoutingRequest, *, arrived_s: float) -> Rank:
        """The request's place among those that wait."""
        latest_start_s = arrived_s + self._spare_s(request)
        return rank_of(
            self._queue_policy, arrived_s=arrived_s, latest_start_s=latest_start_s, priority=request.priority
        )

    def _spare_s(self, request: RoutingRequest) -> float:
        """Returns how many seconds a request may wait if it then has a group to itself; infinite where it has no
        objective.
        """
        slo, spare_s = request.slo, math.inf
        if not slo:
            return spare_s
        for replica, report in self.fleet.serving(request.model):
            latency = replica.latency(now_s=self._clock()) or NOMINAL
            ttft_s = latency.prefill_s(request.num_prompt_tokens, chunk_tokens=max(1, report.max_num_batched_tokens))
            num_tokens = min(request.max_output_tokens, self._lengths.mean(request.model)) if report.num_blocks else 0
            decode_s = latency.decode_s(num_decodes=1, context_tokens=request.num_prompt_tokens)
            e2e_s = ttft_s + max(0.0, num_tokens - 1) * decode_s
            spare_s = min(spare_s, *_margins(slo, ttft_s=ttft_s, e2e_s=e2e_s))
        return spare_s

    def place(self, queued: QueuedRequest) -> Lease | Shortage:
        """A lease on the best group, or why there is none yet.

        Raises:
            ResourceExhaustedError: no group can keep the request's SLO.
        """
        request, now_s = queued.request, self._clock()
        candidates = [
            self._candidates.weighed(candidate, queued, now_s=now_s) for candidate in self._candidates.find(queued)
        ]
        if not candidates:
            return Shortage.NO_GROUP
        # What a model takes to wake is no reason to refuse those that it was woken for.
        counted_from_s = max(queued.arrived_s, self.fleet.awake_since_s(request.model))
        admitted = admit(request, candidates, waited_s=now_s - counted_from_s)
        roomy = [each for each in admitted if request.resumed or _may_take(each, request)]
        if not roomy:
            return Shortage.NO_ROOM
        best = choose(request, roomy, policy=self._policy)
        reason = explain(request, best, num_candidates=len(candidates))
        is_only = sum(1 for _ in self.fleet.serving(request.model)) == 1
        may_be_gone = self.fleet.may_sleep(request.model)  # by the next request
        is_free = not (request.slo or may_be_gone or self.lease_table.num_bound(best.place(request.model)))
        is_sole_replica = is_only and is_free and best.num_places >= 2 * request.num_sequences
        slack_s = self._spare_s(request) - (now_s - queued.arrived_s)
        return self._lease(queued, best, reason=reason, is_sole_replica=is_sole_replica, slack_s=slack_s, now_s=now_s)

    def release(self, release: Release) -> Lease | None:
        """Ends a lease; None if it is unknown or has ended."""
        if release.lease_id:
            lease = self.lease_table.close(release.lease_id)
        else:
            lease = self.lease_table.close_request(release.gateway_id, release.request_id, attempt=release.attempt)
        if lease is not None:
            self.vacate(lease, is_complete=release.outcome is LeaseOutcome.COMPLETE)
            if release.outcome is LeaseOutcome.COMPLETE and release.ttft_s is not None:
                self._learn(lease, release.ttft_s)
                self._learn_answer(lease, release)
        if lease is not None and release.outcome is LeaseOutcome.COMPLETE and release.num_output_tokens:
            self._lengths.note(lease.model, release.num_output_tokens / lease.num_sequences)
        return lease

    def note_first_token(self, lease_id: str, *, ttft_s: float) -> Lease | None:
        """Learns from a first token that has come, and returns its lease; None if that is unknown or has ended."""
        lease = self.lease_table.find(lease_id)
        if lease is not None:
            self._learn(lease, ttft_s)
        return lease

    def _learn(self, lease: Lease, ttft_s: float) -> None:
        """Learns once for each lease how late the first token of a model that generates came."""
        replica, commitment = self.fleet.replica(lease.worker_id, lease.model), lease.commitment
        if replica is None or commitment is None or commitment.has_begun:
            return
        commitment.has_begun = True
        now_s = self._clock()
        if (late_s := lease.late_s(ttft_s, latency=replica.cautious(now_s=now_s))) is not None:
            replica.lateness.observe(late_s, now_s=now_s)

    def _learn_answer(self, lease: Lease, release: Release) -> None:
        """Learns how many times as long as foretold an answer's tokens took."""
        replica, now_s = self.fleet.replica(lease.worker_id, lease.model), self._clock()
        if replica is None or replica.drift is None:
            return
        if (ratio := lease.slowness(release, latency=replica.drift.cautious(now_s=now_s))) is not None:
            replica.lateness.observe_answer(ratio, now_s=now_s)

    def _lease(
        self,
        queued: QueuedRequest,
        best: CandidateGroup,
        *,
        reason: str,
        is_sole_replica: bool,
        slack_s: float,
        now_s: float,
    ) -> Lease:
        request, commitment = queued.request, None
        if best.job is None and best.is_predictable:
            commitment = commit(request, best, rank=queued.rank, arrived_s=queued.arrived_s, now_s=now_s)
            self._impose(request, best, step_s=commitment.step_s)
        self._num_decisions += 1
        self.fleet.choose(best.worker_id, request.model, self._num_decisions)
        decoder = best.decode_at
        if decoder is not None:
            self.fleet.choose(decoder.worker_id, request.model, self._num_decisions)
        lease = Lease(
            lease_id=f"{self._instance_id}-{self._num_decisions}",
            request_id=request.request_id,
            attempt=request.attempt,
            gateway_id=request.gateway_id,
            tenant=request.tenant,
            tenant_weight=request.tenant_weight,
            model=request.model,
            group_id=best.group_id,
            worker_id=best.worker_id,
            endpoint=best.endpoint,
            num_sequences=request.num_sequences,
            num_prefill_tokens=best.num_uncached_tokens(request) * request.num_sequences,
            num_cached_tokens=best.num_cached_tokens,
            leased_at_s=now_s,
            slo=request.slo,
            reason=reason,
            ttft_s=best.ttft_s(request) if best.is_predictable else None,
            tpot_s=best.tpot_s(request) if best.is_predictable else None,
            e2e_s=best.e2e_s(request) if best.is_predictable else None,
            latency=best.latency if best.is_predictable else None,
            overhead_s=best.overhead_s,
            waited_s=now_s - queued.arrived_s,
            is_sole_replica=is_sole_replica,
            decode_group_id=decoder.group_id if decoder is not None else "",
            decode_target=MoveTarget(worker_id=decoder.worker_id, endpoint=decoder.endpoint) if decoder else None,
            source=best.source,
            slack_s=slack_s,
            commitment=commitment,
        )
        self.lease_table.open(lease)
        num_output_tokens = min(request.max_output_tokens, best.mean_output_tokens)
        self.fair_share.charge(lease.tenant, lease.num_prefill_tokens + num_output_tokens * lease.num_sequences)
        group = self.fleet.group(best.worker_id)
        if best.job is not None and group is not None:
            group.predictor.enter(lease.lease_id, best.job, now_s=now_s)
        return lease

    def _impose(self, request: RoutingRequest, best: CandidateGroup, *, step_s: float) -> None:
        """Charges the request's work to the commitments that the group has already."""
        place = best.place(request.model)
        if self.lease_table.num_bound(place):
            prefill_s = best.compute_s(request)
            for commitment in self._candidates.admitted(place):
                commitment.bear(step_s=step_s, prefill_s=prefill_s)


def _may_take(candidate: CandidateGroup, request: RoutingRequest) -> bool:
    """No objective is promised where the first requests are about to show how fast the group really is."""
    is_guess = candidate.is_unproven and bool(request.slo)
    return candidate.has_room and not candidate.is_harmful and not is_guess


def _margins(slo: Slo, *, ttft_s: float, e2e_s: float) -> tuple[float, float]:
    """Returns the seconds that an idle group leaves of the TTFT and E2E objectives; infinite for an objective that is
    not set.
    """
    return (
        math.inf if slo.ttft_s is None else slo.ttft_s - ttft_s,
        math.inf if slo.e2e_s is None else slo.e2e_s - e2e_s,
    )
