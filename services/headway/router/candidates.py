"""What the router knows of the groups that could take a request, put together for one decision."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headway.core.latency import LatencyModel
from headway.core.line import QueuePolicy, rank_of
from headway.core.load import LoadReport
from headway.router.candidate_group import NOMINAL, CandidateGroup
from headway.router.fleet import Fleet, Replica
from headway.router.interference import Commitment, commit, is_harmful, num_overtaken_tokens
from headway.router.latency_predictor import LeasedJob
from headway.router.lease_table import LeaseTable
from headway.router.lengths import OutputLengths
from headway.router.place import Place
from headway.router.policies.policy import Policy
from headway.router.queued_request import QueuedRequest
from headway.router.remote_prefix import with_source
from headway.router.roles import by_role

# A gateway submits within this after it got its lease, so a later report counts the sequence.
_SUBMIT_S = 0.02
# What an engine takes to load an adapter, about: so much longer a request may wait for a group that has it.
_ADAPTER_LOAD_S = 0.5


class Candidates:
    """Finds the groups for one request after the other."""

    def __init__(
        self,
        fleet: Fleet,
        lease_table: LeaseTable,
        *,
        lengths: OutputLengths,
        policy: Policy,
        queue_policy: QueuePolicy,
        max_group_sequences: int,
        answer_overhead_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._lease_table = lease_table
        self._lengths = lengths
        self._policy = policy
        self._queue_policy = queue_policy
        self._max_group_sequences = max_group_sequences
        self._answer_overhead_s = answer_overhead_s
        self._clock = clock

    def find(self, queued: QueuedRequest) -> Sequence[CandidateGroup]:
        """Returns the groups that could serve a request, now or when they have room."""
        request = queued.request
        replicas = list(self._fleet.serving(request.model))
        serving = [
            self._candidate(replica, report, queued, latency=self._latency(replica, [other for other, _ in replicas]))
            for replica, report in replicas
            if replica.group.worker_id not in request.excluded_worker_ids
            or max(replica.group.connected_at_s, replica.loaded_at_s) > queued.failed_at_s
        ]
        candidates = by_role(request, serving, policy=self._policy)
        if not queued.cached_blocks:
            return candidates
        return [with_source(request, candidate, serving) for candidate in candidates]

    def weighed(self, candidate: CandidateGroup, queued: QueuedRequest, *, now_s: float) -> CandidateGroup:
        """Says of a group whose model generates whether somebody there would be late for the request."""
        request, place = queued.request, candidate.place(queued.request.model)
        if candidate.job is not None or request.resumed or not candidate.is_predictable:
            return candidate
        if not self._lease_table.num_bound(place):
            return candidate
        newcomer = commit(request, candidate, rank=queued.rank, arrived_s=queued.arrived_s, now_s=now_s)
        is_late = is_harmful(newcomer, self.admitted(place), request=request, candidate=candidate, now_s=now_s)
        return replace(candidate, is_harmful=True, answer_s=candidate.e2e_s(request)) if is_late else candidate

    def admitted(self, place: Place) -> list[Commitment]:
        """Returns the commitments of a group to those who have a lease on it, the newest first."""
        return [lease.commitment for lease in self._lease_table.latest(place) if lease.commitment is not None]

    def _latency(self, replica: Replica, others: Sequence[Replica]) -> LatencyModel:
        """Returns the seconds of its steps. Of one whose estimate nothing proves, those of the replica with the same
        estimate that has done most: else the catalogue's hopes would win over what steps really take.
        """
        now_s = self._clock()
        if not replica.is_proven(now_s=now_s):
            proven = [other for other in others if other.is_as_planned_for(replica) and other.is_proven(now_s=now_s)]
            replica = max(proven, key=lambda other: other.observed_s, default=replica)
        return replica.cautious(now_s=now_s) or NOMINAL

    def _candidate(
        self, replica: Replica, report: LoadReport, queued: QueuedRequest, *, latency: LatencyModel
    ) -> CandidateGroup:
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
        others_s = sum(self._step_s(other, now_s=now_s) for other in others)
        num_pending_tokens = report.num_pending_prefill_tokens + num_unreported_tokens
        num_sequences = report.num_running + report.num_waiting + num_unreported
        num_overtaken = 0
        if job is None and request.slo and queued.rank:
            admitted = self.admitted(replica.place)
            num_overtaken = num_overtaken_tokens(queued.rank, admitted, num_tokens=num_pending_tokens)
        return CandidateGroup(
            worker_id=group.worker_id,
            group_id=group.group_id,
            endpoint=group.endpoint,
            latency=latency,
            others_s=others_s,
            job=job,
            answer_s=forecast.answer_s - now_s + others_s if forecast is not None else 0.0,
            soonest_s=forecast.soonest_s + self._answer_overhead_s - now_s + others_s if forecast is not None else 0.0,
            is_harmful=forecast is not None and forecast.is_harmful,
            overhead_s=self._answer_overhead_s if job is not None else self._overhead_s(replica, now_s=now_s),
            is_unproven=job is None and num_sequences > 0 and self._is_unproven(replica, now_s=now_s),
            num_sequences=num_sequences + self._lease_table.num_expected(replica.place),
            num_pending_tokens=num_pending_tokens,
            num_overtaken_tokens=num_overtaken,
            num_context_tokens=report.num_context_tokens,
            num_cache_tokens=report.num_blocks * report.block_size,
            max_num_seqs=report.max_num_seqs,
            max_num_batched_tokens=report.max_num_batched_tokens,
            num_cached_tokens=max(0, min(num_cached_tokens, request.num_prompt_tokens - 1)),
            # Without blocks a model does not generate, and its sequences end with the step that computes them.
            mean_output_tokens=self._lengths.mean(request.model) if report.num_blocks else 0.0,
            num_places=self._lease_table.num_places(replica.place, cap=cap, tenant=request.tenant),
            last_chosen=replica.last_chosen,
            role=replica.role,
            num_free_tokens=report.num_free_blocks * report.block_size,
            block_size=report.block_size,
            block_bytes=replica.block_bytes,
            fetch_bytes_per_s=report.fetch_bytes_per_s,
            usual=replica.usual(now_s=now_s) if self._is_deserted(replica, num_sequences) else None,
            adapter_s=_ADAPTER_LOAD_S if request.adapter and request.adapter not in report.adapters else 0.0,
        )

    def _is_unproven(self, replica: Replica, *, now_s: float) -> bool:
        """Whether too little is known of a replica that is busy to promise an objective on it."""
        if not replica.is_estimated:
            return False
        num_without = self._lease_table.num_without_token(replica.place)
        return not replica.is_proven(now_s=now_s) or num_without >= replica.lateness.max_without_token

    def _is_deserted(self, replica: Replica, num_sequences: int) -> bool:
        return num_sequences == 0 and self._lease_table.num_leases(replica.place) == 0

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

    def _step_s(self, replica: Replica, *, now_s: float) -> float:
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
        return (replica.latency(now_s=now_s) or NOMINAL).step_s(
            prefill_tokens=min(num_pending_tokens, report.max_num_batched_tokens),
            num_decodes=report.num_running if report.num_blocks else 0,
            context_tokens=report.num_context_tokens,
        )

    def _unreported(self, replica: Replica, report: LoadReport) -> tuple[int, int]:
        """Sequences, and prompt tokens, leased to a replica that its latest report does not count yet.

        Those are the newest leases: the ones given after the report, and as many as the report counts too few,
        since sequences that came during a long step appear in the report after the next one only.
        """
        num_missing = self._lease_table.num_sequences(replica.place) - report.num_running - report.num_waiting
        reported_until_s = replica.group.reported_at_s - _SUBMIT_S
        num_sequences = num_tokens = 0
        for lease in self._lease_table.latest(replica.place):
            if num_sequences >= num_missing and lease.leased_at_s <= reported_until_s:
                break
            num_sequences += lease.num_sequences
            num_tokens += lease.num_prefill_tokens
        return num_sequences, num_tokens


def _backlog_s(report: LoadReport, stage_latencies: Sequence[LatencyModel]) -> float:
    """Returns the seconds, in full steps, that a worker's reported backlog takes."""
    num_tokens = report.num_pending_prefill_tokens
    num_steps = -(-num_tokens // max(1, report.max_num_batched_tokens))
    return max(each.base_s * num_steps + each.per_prefill_token_s * num_tokens for each in stage_latencies)
