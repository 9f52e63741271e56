"""Routing decisions: state in, a lease out. No I/O, and time comes from a clock that may be virtual."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto

from headway.core.latency import LatencyModel
from headway.core.line import QueuePolicy, Rank, rank_of
from headway.core.load import LoadReport
from headway.core.move import MoveTarget
from headway.core.slo import Slo
from headway.router.admission import admit
from headway.router.candidate_group import NOMINAL, CandidateGroup
from headway.router.decision import choose, explain
from headway.router.fleet import Fleet, Replica
from headway.router.interference import Commitment, commit, is_harmful, num_overtaken_tokens
from headway.router.latency_predictor import LeasedJob
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.lease_table import LeaseTable
from headway.router.lengths import OutputLengths
from headway.router.place import Place
from headway.router.policies.policy import Policy
from headway.router.queued_request import QueuedRequest
from headway.router.remote_prefix import with_source
from headway.router.request import RoutingRequest
from headway.router.roles import by_role

# A gateway submits within this after it got its lease, so a later report counts the sequence.
_SUBMIT_S = 0.02


class Shortage(Enum):
    """The reason why a request has no place yet."""

    NO_GROUP = auto()  # none serves its model just now
    NO_ROOM = auto()  # all that could are full, or somebody there would be late for it


class Dispatcher:
    """Places requests in groups.

    Attributes:
        fleet: the groups.
        lease_table: the leases.
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
        self.lease_table = LeaseTable()
        self._policy = policy
        self._queue_policy = queue_policy
        self._answer_overhead_s = answer_overhead_s
        self._max_group_sequences = max_group_sequences
        self._instance_id = instance_id
        self._clock = clock
        self._lengths = OutputLengths()
        self._num_decisions = 0

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
        return bool(self._candidates(queued))

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
            latency = replica.latency or NOMINAL
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
        candidates = [self._weighed(candidate, queued, now_s=now_s) for candidate in self._candidates(queued)]
        if not candidates:
            return Shortage.NO_GROUP
        admitted = admit(request, candidates, waited_s=now_s - queued.arrived_s)
        roomy = [each for each in admitted if request.resumed or _may_take(each, request)]
        if not roomy:
            return Shortage.NO_ROOM
        best = choose(request, roomy, policy=self._policy)
        reason = explain(request, best, num_candidates=len(candidates))
        is_only = sum(1 for _ in self.fleet.serving(request.model)) == 1
        is_free = not request.slo and not self.lease_table.num_bound(best.place(request.model))
        is_sole_replica = is_only and is_free and best.num_places >= 2 * request.num_sequences
        slack_s = self._spare_s(request) - (now_s - queued.arrived_s)
        return self._lease(queued, best, reason=reason, is_sole_replica=is_sole_replica, slack_s=slack_s, now_s=now_s)

    def release(self, release: Release) -> Lease | None:
        """Ends a lease; None if it is unknown or has ended."""
        if release.lease_id:
            lease = self.lease_table.close(release.lease_id)
        else:
            lease = self.lease_table.close_request(release.gateway_id, release.request_id)
        if lease is not None:
            self.vacate(lease, is_complete=release.outcome is LeaseOutcome.COMPLETE)
            if release.outcome is LeaseOutcome.COMPLETE and release.ttft_s is not None:
                self._learn(lease, release.ttft_s)
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
        if (late_s := lease.late_s(ttft_s, latency=replica.latency)) is not None:
            replica.lateness.observe(late_s, now_s=self._clock())

    def _candidates(self, queued: QueuedRequest) -> Sequence[CandidateGroup]:
        request = queued.request
        serving = [
            self._candidate(replica, report, queued)
            for replica, report in self.fleet.serving(request.model)
            if replica.group.worker_id not in request.excluded_worker_ids
            or replica.group.connected_at_s > queued.failed_at_s
        ]
        candidates = by_role(request, serving, policy=self._policy)
        if not queued.cached_blocks:
            return candidates
        return [with_source(request, candidate, serving) for candidate in candidates]

    def _weighed(self, candidate: CandidateGroup, queued: QueuedRequest, *, now_s: float) -> CandidateGroup:
        """Says of a group whose model generates whether somebody there would be late for the request."""
        request, place = queued.request, candidate.place(queued.request.model)
        if candidate.job is not None or request.resumed or not candidate.is_predictable:
            return candidate
        if not self.lease_table.num_bound(place):
            return candidate
        newcomer = commit(request, candidate, rank=queued.rank, arrived_s=queued.arrived_s, now_s=now_s)
        is_late = is_harmful(newcomer, self._admitted(place), request=request, candidate=candidate, now_s=now_s)
        return replace(candidate, is_harmful=True, answer_s=candidate.e2e_s(request)) if is_late else candidate

    def _admitted(self, place: Place) -> list[Commitment]:
        """Returns the commitments of a group to those who have a lease on it, the newest first."""
        return [lease.commitment for lease in self.lease_table.latest(place) if lease.commitment is not None]

    def _candidate(self, replica: Replica, report: LoadReport, queued: QueuedRequest) -> CandidateGroup:
        request, group, now_s = queued.request, replica.group, self._clock()
        job = self._job(replica, report, queued, now_s=now_s)
        forecast = group.predictor.predict(job, now_s=now_s) if job is not None else None
        num_unreported, num_unreported_tokens = self._unreported(replica, report)
        num_cached_tokens = queued.cached_blocks.get(group.worker_id, 0) * report.block_size
        cap = max(self._max_group_sequences, 4 * report.max_num_seqs)
        # The line has the other models that answer in one pass.
        others = [
            other for other in group.replicas.values() if other is not replica and not (job and other.is_one_pass)
        ]
        others_s = sum(map(self._step_s, others))
        num_pending_tokens = report.num_pending_prefill_tokens + num_unreported_tokens
        num_sequences = report.num_running + report.num_waiting + num_unreported
        num_overtaken = 0
        if job is None and request.slo and queued.rank:
            admitted = self._admitted(replica.place)
            num_overtaken = num_overtaken_tokens(queued.rank, admitted, num_tokens=num_pending_tokens)
        return CandidateGroup(
            worker_id=group.worker_id,
            group_id=group.group_id,
            endpoint=group.endpoint,
            latency=replica.drift.cautious if replica.drift is not None else NOMINAL,
            others_s=others_s,
            job=job,
            answer_s=forecast.answer_s - now_s + others_s if forecast is not None else 0.0,
            soonest_s=forecast.soonest_s + self._answer_overhead_s - now_s + others_s if forecast is not None else 0.0,
            is_harmful=forecast is not None and forecast.is_harmful,
            overhead_s=self._answer_overhead_s if job is not None else self._overhead_s(replica, now_s=now_s),
            is_unproven=job is None and num_sequences > 0 and self._is_unproven(replica),
            num_sequences=num_sequences + self.lease_table.num_expected(replica.place),
            num_pending_tokens=num_pending_tokens,
            num_overtaken_tokens=num_overtaken,
            num_context_tokens=report.num_context_tokens,
            num_cache_tokens=report.num_blocks * report.block_size,
            max_num_seqs=report.max_num_seqs,
            max_num_batched_tokens=report.max_num_batched_tokens,
            num_cached_tokens=max(0, min(num_cached_tokens, request.num_prompt_tokens - 1)),
            # Without blocks a model does not generate, and its sequences end with the step that computes them.
            mean_output_tokens=self._lengths.mean(request.model) if report.num_blocks else 0.0,
            num_places=cap - self.lease_table.num_sequences(replica.place),
            last_chosen=replica.last_chosen,
            role=replica.role,
            num_free_tokens=report.num_free_blocks * report.block_size,
            block_size=report.block_size,
            block_bytes=replica.block_bytes,
            fetch_bytes_per_s=report.fetch_bytes_per_s,
        )

    def _is_unproven(self, replica: Replica) -> bool:
        """Whether too little is known of a replica that is busy to promise an objective on it."""
        if not replica.is_estimated:
            return False
        num_without = self.lease_table.num_without_token(replica.place)
        return not replica.is_proven or num_without >= replica.lateness.max_without_token

    def _overhead_s(self, replica: Replica, *, now_s: float) -> float:
        """Of a model that generates: what is configured, or more where first tokens came later than that."""
        return max(self._answer_overhead_s, replica.lateness.margin_s(now_s=now_s))

    def _job(self, replica: Replica, report: LoadReport, queued: QueuedRequest, *, now_s: float) -> LeasedJob | None:
        """Returns the request as a job of the group's latency predictor; None for a model that generates, or whose
        latency is unknown.
        """
        request, group = queued.request, replica.group
        if not replica.is_one_pass or not replica.stage_latencies:
            return None
        ready_s = now_s
        if group.predictor.is_empty and group.reported_at_s > group.predictor.left_s:
            ready_s += _backlog_s(report, replica.stage_latencies)  # leased by a router before or beside this one
        deadline_s = queued.arrived_s + (request.slo.wait_s - self._answer_overhead_s)
        alone_s = sum(latency.one_pass_s([request.num_prompt_tokens]) for latency in replica.stage_latencies)
        return LeasedJob(
            model=replica.model,
            num_tokens=request.num_prompt_tokens,
            ready_s=ready_s,
            deadline_s=deadline_s,
            rank=rank_of(
                self._queue_policy,
                arrived_s=queued.arrived_s,
                latest_start_s=deadline_s - alone_s,
                priority=request.priority,
            ),
            is_considerate=self._queue_policy is QueuePolicy.LEAST_SLACK,
            latencies=replica.stage_latencies,
            max_num_jobs=report.max_num_seqs,
            max_num_tokens=report.max_num_batched_tokens,
        )

    def _step_s(self, replica: Replica) -> float:
        """Returns the seconds of a step of another model on the device, for which this one waits; 0 while that has
        nothing to do.
        """
        report = replica.report
        if report is None:
            return 0.0
        num_unreported, num_unreported_tokens = self._unreported(replica, report)
        if report.num_running + report.num_waiting + num_unreported == 0:
            return 0.0
        num_pending_tokens = report.num_pending_prefill_tokens + num_unreported_tokens
        return (replica.latency or NOMINAL).step_s(
            prefill_tokens=min(num_pending_tokens, report.max_num_batched_tokens),
            num_decodes=report.num_running if report.num_blocks else 0,
            context_tokens=report.num_context_tokens,
        )

    def _unreported(self, replica: Replica, report: LoadReport) -> tuple[int, int]:
        """Sequences, and prompt tokens, leased to a replica that its latest report does not count yet.

        Those are the newest leases: the ones given after the report, and as many as the report counts too few,
        since sequences that came during a long step appear in the report after the next one only.
        """
        num_missing = self.lease_table.num_sequences(replica.place) - report.num_running - report.num_waiting
        reported_until_s = replica.group.reported_at_s - _SUBMIT_S
        num_sequences = num_tokens = 0
        for lease in self.lease_table.latest(replica.place):
            if num_sequences >= num_missing and lease.leased_at_s <= reported_until_s:
                break
            num_sequences += lease.num_sequences
            num_tokens += lease.num_prefill_tokens
        return num_sequences, num_tokens

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
            gateway_id=request.gateway_id,
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
        group = self.fleet.group(best.worker_id)
        if best.job is not None and group is not None:
            group.predictor.enter(lease.lease_id, best.job, now_s=now_s)
        return lease

    def _impose(self, request: RoutingRequest, best: CandidateGroup, *, step_s: float) -> None:
        """Charges the request's work to the commitments that the group has already."""
        place = best.place(request.model)
        if self.lease_table.num_bound(place):
            prefill_s = best.compute_s(request)
            for commitment in self._admitted(place):
                commitment.bear(step_s=step_s, prefill_s=prefill_s)


def _may_take(candidate: CandidateGroup, request: RoutingRequest) -> bool:
    """No objective is promised where the first requests are about to show how fast the group really is."""
    is_guess = candidate.is_unproven and bool(request.slo)
    return candidate.has_room and not candidate.is_harmful and not is_guess


def _backlog_s(report: LoadReport, stage_latencies: Sequence[LatencyModel]) -> float:
    """Returns the seconds, in full steps, that a worker's reported backlog takes."""
    num_tokens = report.num_pending_prefill_tokens
    num_steps = -(-num_tokens // max(1, report.max_num_batched_tokens))
    return max(each.base_s * num_steps + each.per_prefill_token_s * num_tokens for each in stage_latencies)


def _margins(slo: Slo, *, ttft_s: float, e2e_s: float) -> tuple[float, float]:
    """Returns the seconds that an idle group leaves of the TTFT and E2E objectives; infinite for an objective that is
    not set.
    """
    return (
        math.inf if slo.ttft_s is None else slo.ttft_s - ttft_s,
        math.inf if slo.e2e_s is None else slo.e2e_s - e2e_s,
    )
