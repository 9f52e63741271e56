"""Routing: one decision per request, made from what the workers report and the plan predicts."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial

from headway.core.errors import NotFoundError, ResourceExhaustedError, UnavailableError
from headway.core.line import QueuePolicy
from headway.core.load import LoadReport
from headway.core.plan.serving import ServingPlan
from headway.observe.metrics import ROUTE_DECISIONS, ROUTE_IN_FLIGHT, ROUTE_QUEUED, ROUTE_SECONDS
from headway.router.attainment import Attainment
from headway.router.client import LoadReportClient, PrefixClient
from headway.router.config import RouterConfig
from headway.router.dispatcher import Dispatcher, Shortage
from headway.router.fleet import Group
from headway.router.lease import Lease, Release
from headway.router.policies.registry import make_policy
from headway.router.prediction import observe_refusal, observe_release
from headway.router.queue import WaitingQueue
from headway.router.queued_request import QueuedRequest
from headway.router.request import RoutingRequest
from headway.router.traffic import TrafficRecord
from headway.router.view import FleetView, GroupLoad, ModelArrivals
from headway.rpc.peers import Peers
from headway.store.membership import Member
from headway.store.plan_follower import PlanFollower
from headway.store.plans import PlanStore

_RETRY_S = 1.0
_WAKE_RETRY_S = 10.0


class RouterService:
    """Admits requests, places them, and keeps their leases.

    Attributes:
        dispatcher: decides.
        follower: tells of new plans.
        attainment: counts how requests fared.
        traffic: notes what arrives.
    """

    def __init__(
        self,
        config: RouterConfig,
        *,
        peers: Peers,
        plans: PlanStore,
        attainment: Attainment,
        traffic: TrafficRecord,
        instance_id: str,
    ) -> None:
        self.dispatcher = Dispatcher(
            policy=make_policy(config.policy),
            max_group_sequences=config.max_group_sequences,
            instance_id=instance_id,
            clock=time.monotonic,
            queue_policy=QueuePolicy(config.queue_policy),
            answer_overhead_s=config.answer_overhead_s,
        )
        self.follower = PlanFollower(plans, take=self.apply)
        self.attainment = attainment
        self.traffic = traffic
        self._config = config
        self._instance_id = instance_id
        self._num_arrived: Counter[str] = Counter()
        self._queue = WaitingQueue(self.dispatcher.fair_share)
        self._workers = LoadReportClient(peers)
        self._prefixes = PrefixClient(peers, timeout_s=config.prefix_timeout_s)

    async def route(self, request: RoutingRequest) -> Lease:
        """A lease, at once or after waiting in line for it.

        Raises:
            NotFoundError: nobody serves the model, nor is meant to.
            ResourceExhaustedError: it would miss its SLO, or too many wait already.
            UnavailableError: no group of the model is up, or none had room in time.
        """
        if not self.dispatcher.fleet.knows(request.model):
            await self.follower.catch_up()
            self._require_known(request.model)
        self._num_arrived[request.model] += 1
        request = replace(request, slo=request.slo.over(self.dispatcher.fleet.slo(request.model)))
        with self.traffic.arriving(request):
            return await self._route(request)

    async def _route(self, request: RoutingRequest) -> Lease:
        asked_s = time.monotonic()
        arrived_s = asked_s - request.elapsed_s
        previous = self.dispatcher.supersede(request)
        if previous:
            self.freed([previous])
        queued = QueuedRequest(
            request=request,
            arrived_s=arrived_s,
            failed_at_s=previous.leased_at_s if previous else asked_s,
            rank=self.dispatcher.rank(request, arrived_s=arrived_s),
            cached_blocks=await self._prefixes.lookup(request) if self._depends_on_prefix(request) else {},
        )
        with self._counting(request):
            return await self._find_place(queued, asked_s=asked_s)

    def release(self, release: Release) -> None:
        """Ends a lease, once; an unknown one is ignored, since the router may have been restarted."""
        lease = self.dispatcher.release(release)
        if lease is not None:
            self.attainment.count_release(lease, release)
            self.traffic.end(lease, release)
            observe_release(lease, release)
            self.freed([lease])

    def note_first_token(self, lease_id: str, *, ttft_s: float) -> None:
        """Learns from it, and looks whether somebody who waits may be promised an objective now; no change for an
        unknown lease, since the router may have been restarted.
        """
        lease = self.dispatcher.note_first_token(lease_id, ttft_s=ttft_s)
        if lease is not None:
            self._serve_queue(lease.model)

    def abandon(self, lease: Lease) -> None:
        """Takes back a lease whose caller was gone before it could learn of it."""
        if self.dispatcher.lease_table.close(lease.lease_id):
            self.freed([lease])

    def freed(self, leases: Iterable[Lease]) -> None:
        """Passes the places of ended leases on to those that wait."""
        for lease in leases:
            self.dispatcher.vacate(lease)
            self._note_in_flight(lease)
        for model in {lease.model for lease in leases}:
            self._serve_queue(model)

    async def apply(self, plan: ServingPlan) -> None:
        """Routes by a plan's groups, latency models and objectives from now on."""
        self.dispatcher.fleet.apply(plan)
        self._refuse_ended()

    async def follow(self, member: Member) -> None:
        """Takes in a worker's load reports for as long as they come. A model that it tells of first is one that a plan
        gave it: that is read before requests are sent there, as it says what the group is for, and how fast."""
        fleet = self.dispatcher.fleet
        group = fleet.join(member.member_id, endpoint=member.endpoint, group_id=member.group_id)
        reports = self._workers.watch_load(member.endpoint, interval_ms=self._config.load_interval_ms)
        try:
            async with aclosing(reports):
                async for of_models in reports:
                    if not fleet.expects(group, of_models):
                        await self.follower.catch_up()
                    fleet.update(group, of_models, now_s=time.monotonic())
                    self._refuse_ended()
                    for report in of_models:
                        self._serve_queue(report.model)
        finally:
            group.disconnect()
            self._refuse_ended()

    def lose(self, member: Member) -> None:
        """Forgets a worker that is gone. Its leases end when their gateways release them or ask for others."""
        self.dispatcher.fleet.leave(member.member_id, endpoint=member.endpoint)

    def fleet_view(self) -> FleetView:
        return FleetView(
            groups=tuple(load for group in self.dispatcher.fleet.groups for load in self._loads_of(group)),
            attainments=self.attainment.totals,
            num_in_flight=self.dispatcher.lease_table.num_in_flight,
            num_queued=self._queue.num_queued,
            arrivals=tuple(
                ModelArrivals(model=model, num_waiting=self._queue.num_waiting(model), num_arrived=num_arrived)
                for model, num_arrived in self._num_arrived.items()
            ),
            run_id=self._instance_id,
        )

    async def _find_place(self, queued: QueuedRequest, *, asked_s: float) -> Lease:
        model = queued.request.model
        if self.dispatcher.fleet.has_ended(model):  # while its prefix was looked for
            raise self._unknown(model)
        place = self._queue.enter(queued)
        self._serve_queue(model)
        ROUTE_SECONDS.observe(time.monotonic() - asked_s)
        return place.result() if place.done() else await self._wait(place, queued)

    async def _wait(self, place: "asyncio.Future[Lease]", queued: QueuedRequest) -> Lease:
        """Waits for a place, as long as the queue and the request's deadline allow."""
        try:
            self._check_queue(queued)
            async with asyncio.timeout(self._patience_s(queued)):
                return await place
        except TimeoutError:
            if place.done() and not place.cancelled():
                return place.result()
            raise self._no_place(queued) from None
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.abandon(place.result())
            raise
        finally:
            self._queue.leave(queued)
            self._note_queued(queued.request.model)

    def _serve_queue(self, model: str) -> None:
        self._queue.serve(model, place=self._place)

    def _refuse_ended(self) -> None:
        """Tells those that wait for a model which has been deleted that nobody will serve it."""
        for model in self._queue.models:
            if self.dispatcher.fleet.has_ended(model):
                self._queue.refuse(model, partial(self._unknown, model))

    def _place(self, queued: QueuedRequest) -> Lease | Shortage:
        found = self.dispatcher.place(queued)
        if isinstance(found, Lease):
            self._note_in_flight(found)
        return found

    def _require_known(self, model: str) -> None:
        fleet = self.dispatcher.fleet
        if fleet.knows(model):
            return
        if not fleet.models:
            raise UnavailableError(
                "No model is served yet.", hint="Headway is starting; try again in a moment.", retry_after_s=_RETRY_S
            )
        ROUTE_DECISIONS.labels("", "unknown_model").inc()
        raise self._unknown(model)

    def _unknown(self, model: str) -> NotFoundError:
        names = [name for name in self.dispatcher.fleet.models if name != model]
        return NotFoundError(
            f"The model '{model}' is not served here.", hint=f"Ask for one of: {', '.join(names)}.", field="model"
        )

    def _depends_on_prefix(self, request: RoutingRequest) -> bool:
        if not request.block_hashes:
            return False
        return bool(request.slo) or sum(1 for _ in self.dispatcher.fleet.serving(request.model)) > 1

    def _check_queue(self, queued: QueuedRequest) -> None:
        """Counts the request in, or refuses it where the line is too long already."""
        request = queued.request
        self._note_queued(request.model)
        has_room = self._queue.has_room(request.model, tenant=request.tenant, max_queue=self._config.max_queue)
        if not has_room and not request.resumed and self._patience_s(queued) > 0:
            raise ResourceExhaustedError(
                f"{self._config.max_queue} requests wait for the model '{request.model}' already.",
                hint="Try again later, or add workers.",
                retry_after_s=_RETRY_S,
            )

    def _patience_s(self, queued: QueuedRequest) -> float:
        """Returns how many seconds the request may wait, for a worker or for room."""
        request = queued.request
        if not self.dispatcher.has_group(queued) and self.dispatcher.fleet.may_sleep(request.model):
            return self._config.wake_timeout_s
        if request.resumed:
            return self._config.resume_timeout_s
        if not self.dispatcher.has_group(queued):
            return self._config.absent_timeout_s
        left_s = queued.arrived_s + request.slo.wait_s - time.monotonic()
        return min(self._config.queue_timeout_s, max(0.0, left_s))

    def _no_place(self, queued: QueuedRequest) -> UnavailableError | ResourceExhaustedError:
        request, waited_s = queued.request, time.monotonic() - queued.arrived_s
        if not self.dispatcher.has_group(queued) and self.dispatcher.fleet.may_sleep(request.model):
            return UnavailableError(
                f"The model '{request.model}' is being loaded, and was not there within {waited_s:.0f} s.",
                hint="It had been unloaded, because nobody asked for it. Try again in a moment.",
                retry_after_s=_WAKE_RETRY_S,
            )
        if not self.dispatcher.has_group(queued):
            return UnavailableError(
                f"No worker serves the model '{request.model}' just now.",
                hint="Workers that died are being restarted; try again in a moment.",
                retry_after_s=_RETRY_S,
            )
        if waited_s >= request.slo.wait_s:
            return ResourceExhaustedError(
                f"No group had room within {request.slo.wait_s:g} s, the objective of the request.",
                hint="Try again when fewer requests are ahead, or allow more time.",
                field="slo",
                retry_after_s=_RETRY_S,
            )
        return UnavailableError(
            f"No group had room within {waited_s:.0f} s.",
            hint="Try again later, or add workers.",
            retry_after_s=_RETRY_S,
        )

    @contextmanager
    def _counting(self, request: RoutingRequest) -> Iterator[None]:
        outcome = "leased"
        try:
            yield
        except ResourceExhaustedError:
            outcome = "rejected"
            if request.slo:
                self.attainment.count_rejection(request.model)
                observe_refusal(request.model)
            raise
        except UnavailableError:
            outcome = "unavailable"
            raise
        except NotFoundError:
            outcome = "unknown_model"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            ROUTE_DECISIONS.labels(request.model, outcome).inc()

    def _note_in_flight(self, lease: Lease) -> None:
        ROUTE_IN_FLIGHT.labels(*lease.place).set(self.dispatcher.lease_table.num_leases(lease.place))

    def _note_queued(self, model: str) -> None:
        ROUTE_QUEUED.labels(model).set(self._queue.num_waiting(model))

    def _loads_of(self, group: Group) -> Iterator[GroupLoad]:
        """One for each of its models, one of a group that has none."""
        for model, replica in group.replicas.items() or (("", None),):
            known = replica.report if replica is not None else None
            report = known or LoadReport(model="", state=group.state)
            yield GroupLoad(
                group_id=group.group_id,
                worker_id=group.worker_id,
                endpoint=group.endpoint,
                model=report.model,
                state=report.state,
                num_in_flight=self.dispatcher.lease_table.num_leases((group.group_id, model)),
                num_running=report.num_running,
                num_waiting=report.num_waiting,
                num_blocks=report.num_blocks,
                num_free_blocks=report.num_free_blocks,
                report_age_s=time.monotonic() - group.reported_at_s,
                latency=replica.fitted if replica is not None else None,
                observed_s=replica.observed_s if replica is not None else 0.0,
                backend=report.backend,
            )
