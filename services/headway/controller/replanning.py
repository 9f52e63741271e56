"""One re-planning: recorded traffic, a search on the workers that there are, and whether what it finds is worth it."""

import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from headway.controller.clients.planner import PlannerClient
from headway.controller.desired import DesiredPlan
from headway.controller.placements import Placements
from headway.controller.worker_pool import WorkerPool
from headway.core.catalogue import Catalogue
from headway.core.errors import FailedPreconditionError, HeadwayError, InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.core.live_placement import live_clusters, live_placement, placement_text
from headway.core.placement_problem import PlacementProblem, TraceFile, WorkloadSource, planned_policy
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import ServingPlan
from headway.core.plan_change import ChangeKind
from headway.core.replanning import ReplanningDecision, ReplanningPolicy, ReplanningVerdict
from headway.core.search_progress import SearchProgress
from headway.core.traffic import write_replay
from headway.core.units import format_duration
from headway.store.traffic import TrafficStore

_FILE = "traffic.csv"
_FEWEST_REQUESTS = 20
_MOVED_SHARE = 0.1
"""Of the window, by which each model's requests move at most, so that other bursts meet: a trace like the recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    content: bytes
    num_requests: int


class ApplyPlan(Protocol):
    """Applies a placement; see `ControllerService.apply`."""

    async def __call__(self, plan: ServingPlan, *, dry_run: bool, replaces: str | None) -> object: ...


class Replanning:
    """Plans again when it is told to, and applies what is worth it."""

    def __init__(
        self,
        *,
        planner: PlannerClient,
        placements: Placements,
        desired: DesiredPlan,
        pool: WorkerPool,
        traffic: TrafficStore,
        apply: ApplyPlan,
        catalogue: Catalogue,
        answer_overhead_s: float,
        queue_policy: QueuePolicy,
    ) -> None:
        """`answer_overhead_s` is what router and gateways count for an answer, `queue_policy` the stack's."""
        self._planner = planner
        self._placements = placements
        self._desired = desired
        self._pool = pool
        self._traffic = traffic
        self._apply = apply
        self._catalogue = catalogue
        self._answer_overhead_s = answer_overhead_s
        self._queue_policy = queue_policy

    async def run(
        self, how: ReplanningPolicy, *, dry_run: bool
    ) -> AsyncGenerator[SearchProgress | ReplanningDecision, None]:
        """Yields progress, and at last what was decided; a fault is a decision too."""
        decision = ReplanningDecision(decided_at_s=time.time(), verdict=ReplanningVerdict.KEPT, reason="")
        try:
            yield SearchProgress(phase="reading the traffic")
            traffic = await self._read(how)
            decision = replace(decision, num_requests=traffic.num_requests)
            if traffic.num_requests < _FEWEST_REQUESTS:
                reason = f"{traffic.num_requests} requests in {format_duration(how.window_s)} are too few to plan for."
                yield replace(decision, reason=reason)
                return
            found = None
            searching = self._planner.place(
                self._problem(how, traffic), {_FILE: traffic.content}, time_limit_s=how.time_limit_s
            )
            async with aclosing(searching):
                async for told in searching:
                    if isinstance(told, PlacementPlan):
                        found = told
                    else:
                        yield told
            assert found is not None, "a search that ends well has a placement"
            yield SearchProgress(phase="comparing it with what is live")
            yield await self._decide(how, found, traffic, decision, dry_run=dry_run)
        except HeadwayError as error:
            reason = f"{error.message} {error.hint}".strip()
            yield replace(decision, verdict=ReplanningVerdict.FAILED, reason=reason)

    async def _read(self, how: ReplanningPolicy) -> _Traffic:
        """Reads the recorded requests for the models that are to be placed; other models are left aside."""
        now_s, names = time.time(), {model.name for model in how.models}
        parts, num_requests = [write_replay(())], 0
        async for of_hour in self._traffic.read(now_s - how.window_s, now_s):
            wanted = [arrival for arrival in of_hour if arrival.model in names]
            parts.append(write_replay(wanted, header=False))
            num_requests += len(wanted)
        return _Traffic(content="".join(parts).encode(), num_requests=num_requests)

    def _problem(self, how: ReplanningPolicy, traffic: _Traffic) -> PlacementProblem:
        """Searched on what was recorded, checked on other requests of the same character."""
        workers = self._pool.plan_workers()
        if not workers:
            raise FailedPreconditionError("There are no workers.", hint="`headway status` says what is waited for.")
        devices = {profile.hardware for profile in how.profiles}
        clusters = [each for each in live_clusters(workers, catalogue=self._catalogue) if each.device in devices]
        if not clusters:
            raise FailedPreconditionError(
                f"No worker is a {' or '.join(sorted(devices))}, of which there are profiles.",
                hint="Start the duty anew with profiles of the workers that there are.",
            )
        cluster, *others = clusters
        return PlacementProblem(
            models=how.models,
            profiles=tuple(each for each in how.profiles if each.hardware in {c.device for c in clusters}),
            cluster=cluster,
            other_clusters=tuple(others),
            workload=WorkloadSource(
                spec=f"replay:{_FILE}",
                held_out=f"replay:{_FILE},moved={_MOVED_SHARE * how.window_s:g}",
                slo_scale=how.slo_scale,
                files=(TraceFile(name=_FILE, sha256=hashlib.sha256(traffic.content).hexdigest()),),
            ),
            answer_overhead_s=self._answer_overhead_s,
            queue_policy=planned_policy(self._queue_policy, generates=any(model.generates for model in how.models)),
        )

    async def _decide(
        self,
        how: ReplanningPolicy,
        found: PlacementPlan,
        traffic: _Traffic,
        decision: ReplanningDecision,
        *,
        dry_run: bool,
    ) -> ReplanningDecision:
        after = found.predictions.held_out.attainment
        before = await self._live_attainment(found, traffic)
        decision = replace(decision, attainment_before=before, attainment_after=after, placement_id=found.plan_id)
        if before is None:
            reason = "What is live cannot be simulated: it has groups for which there are no profiles. Apply one first."
            return replace(decision, reason=reason)
        gain = f"{after:.2%} instead of {before:.2%} of requests like these would meet their SLO"
        if after - before < how.min_gain:
            return replace(decision, reason=f"{gain}: less than {100 * how.min_gain:g} points more.")
        proposal = await self._placements.propose(found, how.deployments)
        changed = [change for change in proposal.changes if change.kind is not ChangeKind.KEEP]
        if dry_run:
            reason = f"{gain}; {len(changed)} models would be loaded or drained."
            return replace(decision, verdict=ReplanningVerdict.PROPOSED, reason=reason)
        await self._placements.keep(found)
        await self._apply(proposal.plan, dry_run=False, replaces=proposal.replaces)
        reason = f"{gain}; {len(changed)} models are loaded or drained."
        return replace(decision, verdict=ReplanningVerdict.APPLIED, reason=reason)

    async def _live_attainment(self, found: PlacementPlan, traffic: _Traffic) -> float | None:
        """Returns the attainment of the placement in use, on the very requests on which the other was checked; None
        where it is unknown.
        """
        plan = self._desired.plan
        live = (
            None
            if plan is None
            else live_placement(
                plan,
                {model.name for model in found.problem.models},
                catalogue=self._catalogue if found.problem.other_clusters else None,
            )
        )
        if live is None or not live.groups:
            return None
        try:
            tried = await self._planner.try_instead(found, placement_text(live), {_FILE: traffic.content})
        except InvalidArgumentError:
            return None
        return tried.predictions.held_out.attainment
