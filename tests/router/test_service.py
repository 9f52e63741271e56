"""The router over real sockets: who is admitted, who waits, who is refused."""

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import replace

import grpc
import pytest

from headway.core.errors import (
    HeadwayError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from headway.core.plan.serving import Role
from headway.core.slo import Slo
from headway.router.client import PrefixClient
from headway.router.request import RoutingRequest
from headway.rpc.peers import Peers
from headway.store.membership import Membership
from headway.store.plans import PlanStore
from headway.store.redis import Database
from headway.v1 import router_pb2
from tests.router.conftest import StartRouter
from tests.router.harness import ESTIMATED, PREFILLED, RunningRouter, eventually, make_plan, release_once
from tests.router.scripted import IDLE, ScriptedKvCache, ScriptedWorker

SMALL = replace(IDLE, max_num_seqs=1)
"""Four leases and it is full, at a cap of four times its batch."""
HASHES = [bytes([i]) * 16 for i in range(6)]
FOREVER_S = 3600.0


async def refusal(router: RunningRouter, request_id: str = "x", **fields: object) -> HeadwayError:
    """The error that this request gets."""
    with pytest.raises(HeadwayError) as caught:
        await router.route(request_id, **fields)  # type: ignore[arg-type]
    return caught.value


async def fill(router: RunningRouter, *, num: int) -> list[router_pb2.Lease]:
    return [await router.route(f"filler-{i}") for i in range(num)]


async def test_a_lease_tells_where_to_go_and_why(database: Database, routing: StartRouter) -> None:
    async with ScriptedWorker.running(database, "worker-0") as worker, routing(plan=make_plan("worker-0")) as router:
        lease = await router.route("a")
        assert (lease.worker_id, lease.group_id) == ("worker-0", "group-of-worker-0")
        assert lease.endpoint == worker.endpoint
        assert "group-of-worker-0 is the only one" in lease.reason
        assert lease.predicted_ttft_s == pytest.approx(0.11)
        fleet = await router.fleet()
        assert (fleet.num_in_flight, fleet.groups[0].num_in_flight, fleet.groups[0].state) == (1, 1, "ready")
        await router.release(lease.lease_id)
        await router.release(lease.lease_id)
        await router.release("unknown")
        fleet = await router.fleet()
        assert (fleet.num_in_flight, fleet.groups[0].num_in_flight) == (0, 0)


async def test_a_replica_is_the_sole_one_where_there_is_one_group_with_room(
    database: Database, routing: StartRouter
) -> None:
    settings = {"max_group_sequences": 1}
    async with ScriptedWorker.running(database, "worker-0", load=SMALL), routing(**settings) as router:
        assert [lease.is_foregone for lease in await fill(router, num=4)] == [True, True, True, False]
    async with AsyncExitStack() as stack:
        for i in range(2):
            await stack.enter_async_context(ScriptedWorker.running(database, f"worker-{i}"))
        router = await stack.enter_async_context(routing())
        assert not (await router.route("a")).is_foregone


async def test_an_unknown_model_is_refused_with_the_names_of_those_served(
    database: Database, routing: StartRouter
) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        error = await refusal(router, model="gpt-5")
        assert isinstance(error, NotFoundError)
        assert "llama" in error.hint


async def test_a_new_name_is_looked_for_in_the_newest_plan(database: Database, routing: StartRouter) -> None:
    plan = make_plan("worker-0", plan_id="plan-2")
    newer = replace(plan, models=(*plan.models, replace(plan.models[0], name="gpt-5")))
    async with ScriptedWorker.running(database, "worker-0"), routing(plan=make_plan("worker-0")) as router:
        await PlanStore(database).set_current(newer, replaces="")
        error = await refusal(router, model="gpt-5")
        assert isinstance(error, UnavailableError)
        assert "No worker serves the model" in error.message


async def test_roles_are_known_before_a_group_gets_its_first_request(database: Database, routing: StartRouter) -> None:
    """The plan that gave them the model is newer than the one that the router has read: workers tell at once."""
    plan = make_plan("worker-0", "worker-1")
    roles = dict(zip(("worker-0", "worker-1"), (Role.PREFILL, Role.DECODE), strict=True))
    assignments = tuple(replace(each, role=roles[each.worker_id]) for each in plan.assignments)
    async with routing() as router, AsyncExitStack() as stack:
        await PlanStore(database).set_current(replace(plan, assignments=assignments), replaces="")
        for worker_id in roles:
            await stack.enter_async_context(ScriptedWorker.running(database, worker_id))
        await eventually(lambda: len(list(router.service.dispatcher.fleet.serving("llama"))) == len(roles))
        lease = await router.route("a")
        assert (lease.worker_id, lease.decode_target.worker_id) == ("worker-0", "worker-1")


async def test_who_waits_for_a_model_that_is_deleted_is_told_so_at_once(
    database: Database, routing: StartRouter
) -> None:
    plan = make_plan("worker-0")
    other = replace(plan, plan_id="plan-2", models=(replace(plan.models[0], name="qwen"),), assignments=())
    async with (
        ScriptedWorker.running(database, "worker-0", load=SMALL) as worker,
        routing(plan=plan, max_group_sequences=1) as router,
    ):
        await fill(router, num=4)
        waiting = asyncio.create_task(refusal(router, timeout_s=60.0))
        await eventually(lambda: router.service.fleet_view().num_queued == 1)
        await PlanStore(database).set_current(other, replaces="")
        await router.service.follower.catch_up()
        assert not waiting.done(), "it is served until its worker ends it"
        worker.report(state="draining")
        for error in (await waiting, await refusal(router, "cut off", resumed=True), await refusal(router, "new")):
            assert isinstance(error, NotFoundError)
            assert "Ask for one of: qwen." in error.hint
        assert router.service.fleet_view().num_queued == 0


async def test_a_stream_that_waits_for_a_worker_ends_with_its_model(database: Database, routing: StartRouter) -> None:
    plan = make_plan("worker-0")
    async with routing(plan=plan) as router:
        waiting = asyncio.create_task(refusal(router, resumed=True, timeout_s=60.0))
        await eventually(lambda: router.service.fleet_view().num_queued == 1)
        await PlanStore(database).set_current(replace(plan, plan_id="plan-2", models=()), replaces="")
        await router.service.follower.catch_up()
        assert isinstance(await waiting, NotFoundError)


async def test_nothing_is_known_before_there_is_a_plan_or_a_worker(routing: StartRouter) -> None:
    async with routing() as router:
        error = await refusal(router)
        assert isinstance(error, UnavailableError)
        assert error.retry_after_s == 1.0


async def test_a_broken_stream_removes_the_worker_at_once(database: Database, routing: StartRouter) -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(ScriptedWorker.running(database, f"worker-{i}")) for i in range(2)]
        router = await stack.enter_async_context(routing(plan=make_plan("worker-0", "worker-1")))
        await workers[0].crash()
        await eventually(lambda: len(list(router.service.dispatcher.fleet.serving("llama"))) == 1)
        leases = [await router.route(f"r{i}") for i in range(4)]
        assert {lease.worker_id for lease in leases} == {"worker-1"}
        await workers[1].crash()
        resumed = asyncio.create_task(router.route("r0", resumed=True, timeout_s=None))
        new = asyncio.create_task(refusal(router))
        await asyncio.wait({resumed, new}, return_when=asyncio.FIRST_COMPLETED)
        assert not resumed.done(), "what has begun waits for a worker, what is new is refused meanwhile"
        error = await new
        assert isinstance(error, UnavailableError)
        assert error.retry_after_s is not None
        resumed.cancel()


async def test_a_worker_that_comes_later_is_found(database: Database, routing: StartRouter) -> None:
    async with routing(plan=make_plan("worker-0"), absent_timeout_s=5.0) as router:
        waiting = asyncio.create_task(router.route("a"))
        await asyncio.sleep(0.05)
        async with ScriptedWorker.running(database, "worker-0"):
            assert (await waiting).worker_id == "worker-0"


async def test_an_slo_out_of_reach_is_refused_at_once_and_counted(database: Database, routing: StartRouter) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing(plan=make_plan("worker-0")) as router:
        error = await refusal(router, slo={"ttft_s": 0.01})
        assert isinstance(error, ResourceExhaustedError)
        assert error.retry_after_s is not None
        await router.route("b", slo={"ttft_s": 5.0})
        attainment = (await router.fleet()).attainments[0]
        assert (attainment.model, attainment.num_rejected) == ("llama", 1)


async def test_a_models_own_slo_holds_where_the_request_brings_none(database: Database, routing: StartRouter) -> None:
    plan = make_plan("worker-0", slo=Slo(ttft_s=0.01))
    async with ScriptedWorker.running(database, "worker-0"), routing(plan=plan) as router:
        assert isinstance(await refusal(router), ResourceExhaustedError)
        lease = await router.route("b", slo={"ttft_s": 5.0})
        await router.release(lease.lease_id, ttft_s=0.1, tpot_s=0.01)
        attainment = (await router.fleet()).attainments[0]
        assert (attainment.num_met, attainment.num_rejected) == (1, 1)


async def test_a_busy_worker_is_too_slow_until_it_reports_that_it_is_not(
    database: Database, routing: StartRouter
) -> None:
    async with ScriptedWorker.running(database, "worker-0") as worker, routing(plan=make_plan("worker-0")) as router:
        worker.report(num_running=8, num_waiting=8, num_pending_prefill_tokens=8000)
        await eventually(lambda: router.service.fleet_view().groups[0].num_waiting == 8)
        assert isinstance(await refusal(router, slo={"ttft_s": 1.0}), ResourceExhaustedError)
        worker.report(num_running=1, num_waiting=0, num_pending_prefill_tokens=0)
        await eventually(lambda: router.service.fleet_view().groups[0].num_waiting == 0)
        await router.route("b", slo={"ttft_s": 1.0})


async def test_where_nothing_is_known_an_objective_is_promised_once_the_first_token_of_another_has_come(
    database: Database, routing: StartRouter
) -> None:
    plan = make_plan("worker-0", latency=ESTIMATED)
    async with ScriptedWorker.running(database, "worker-0") as worker, routing(plan=plan) as router:
        first = await router.route("first", slo={"ttft_s": 5.0})
        second = asyncio.create_task(router.route("second", slo={"ttft_s": 5.0}))
        await eventually(lambda: router.service.fleet_view().num_queued == 1)
        await router.route("resumed", resumed=True)
        worker.report(num_running=1, work=PREFILLED)
        await eventually(lambda: router.service.fleet_view().groups[0].num_running == 1)
        assert not second.done()
        await router.note_first_token(first.lease_id, ttft_s=0.2)
        assert (await second).worker_id == "worker-0"
        assert router.service.fleet_view().num_in_flight == 3


async def test_requests_beyond_the_cap_wait_in_line_and_the_line_is_bounded(
    database: Database, routing: StartRouter
) -> None:
    settings = {"max_group_sequences": 1, "max_queue": 2}
    async with ScriptedWorker.running(database, "worker-0", load=SMALL), routing(**settings) as router:
        leases = await fill(router, num=4)
        first, second = (asyncio.create_task(router.route(name)) for name in ("first", "second"))
        await eventually(lambda: router.service.fleet_view().num_queued == 2)
        error = await refusal(router)
        assert isinstance(error, ResourceExhaustedError)
        assert error.retry_after_s == 1.0
        await router.release(leases[0].lease_id)
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        assert first.done()
        assert not second.done()
        await router.release(leases[1].lease_id)
        await second
        assert (await router.fleet()).num_in_flight == 4


async def test_a_client_that_leaves_the_line_makes_way(database: Database, routing: StartRouter) -> None:
    settings = {"max_group_sequences": 1}
    async with ScriptedWorker.running(database, "worker-0", load=SMALL), routing(**settings) as router:
        leases = await fill(router, num=4)
        leaver, stayer = (asyncio.create_task(router.route(name)) for name in ("leaver", "stayer"))
        await eventually(lambda: router.service.fleet_view().num_queued == 2)
        leaver.cancel()
        await eventually(lambda: router.service.fleet_view().num_queued == 1)
        await router.release(leases[0].lease_id)
        await stayer
        fleet = await router.fleet()
        assert (fleet.num_in_flight, fleet.num_queued) == (4, 0)


async def test_waiting_ends_with_an_error_when_it_takes_too_long(database: Database, routing: StartRouter) -> None:
    settings = {"max_group_sequences": 1, "queue_timeout_s": 0.2}
    plan = make_plan("worker-0")
    async with ScriptedWorker.running(database, "worker-0", load=SMALL), routing(plan=plan, **settings) as router:
        await fill(router, num=4)
        assert isinstance(await refusal(router), UnavailableError)
        assert (await router.fleet()).num_queued == 0


async def test_a_resumed_stream_waits_for_its_worker_to_be_restarted(database: Database, routing: StartRouter) -> None:
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(ScriptedWorker.running(database, "worker-0"))
        router = await stack.enter_async_context(routing(plan=make_plan("worker-0")))
        lease = await router.route("a")
        await worker.crash()
        resumed = asyncio.create_task(router.route("a", resumed=True, excluded_worker_ids=["worker-0"]))
        await asyncio.sleep(0.1)
        assert isinstance(await refusal(router), UnavailableError)
        await stack.enter_async_context(ScriptedWorker.running(database, "worker-0"))
        again = await resumed
        assert again.worker_id == "worker-0"
        assert again.endpoint != lease.endpoint
        assert (await router.fleet()).num_in_flight == 1


async def test_a_resumed_stream_passes_by_slo_and_cap(database: Database, routing: StartRouter) -> None:
    settings = {"max_group_sequences": 1}
    plan = make_plan("worker-0")
    async with ScriptedWorker.running(database, "worker-0", load=SMALL), routing(plan=plan, **settings) as router:
        await fill(router, num=4)
        await router.route("a", resumed=True, slo={"ttft_s": 0.001})
        assert (await router.fleet()).num_in_flight == 5


async def test_the_holder_of_the_prefix_is_asked_for_and_chosen(database: Database, routing: StartRouter) -> None:
    async with AsyncExitStack() as stack:
        for i in range(3):
            await stack.enter_async_context(ScriptedWorker.running(database, f"worker-{i}"))
        await stack.enter_async_context(ScriptedKvCache.running(database, {"worker-2": 5}))
        router = await stack.enter_async_context(
            routing(plan=make_plan("worker-0", "worker-1", "worker-2"), prefix_timeout_s=1.0)
        )
        lease = await router.route("a", block_hashes=HASHES)
        assert (lease.worker_id, lease.num_cached_tokens) == ("worker-2", 80)


async def test_nobody_is_asked_where_there_is_no_choice(database: Database, routing: StartRouter) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(ScriptedWorker.running(database, "worker-0"))
        kvcache = await stack.enter_async_context(ScriptedKvCache.running(database, {"worker-0": 5}))
        router = await stack.enter_async_context(routing(plan=make_plan("worker-0"), prefix_timeout_s=1.0))
        lease = await router.route("a", block_hashes=HASHES)
        assert kvcache.num_lookups == 0
        await router.release(lease.lease_id)
        await router.route("b", block_hashes=HASHES, slo={"ttft_s": 0.1})  # only the cache makes it in time
        assert kvcache.num_lookups == 1


async def test_nobody_waits_for_a_prefix_service_that_does_not_answer(database: Database, routing: StartRouter) -> None:
    async with AsyncExitStack() as stack:
        for i in range(2):
            await stack.enter_async_context(ScriptedWorker.running(database, f"worker-{i}"))
        kvcache = await stack.enter_async_context(ScriptedKvCache.running(database, {"worker-1": 5}, delay_s=FOREVER_S))
        router = await stack.enter_async_context(routing(prefix_timeout_s=0.5))
        assert (await router.route("a", block_hashes=HASHES)).num_cached_tokens == 0
        assert kvcache.num_lookups == 1


async def test_a_prefix_service_that_was_too_slow_is_left_alone_for_a_second(database: Database) -> None:
    now_s = 100.0
    request = RoutingRequest(
        request_id="a",
        model="llama",
        gateway_id="gateway-0",
        num_prompt_tokens=96,
        max_output_tokens=1,
        block_hashes=tuple(HASHES),
    )
    async with (
        ScriptedKvCache.running(database, {"worker-1": 5}, delay_s=FOREVER_S) as kvcache,
        Peers(Membership(database)).watching() as peers,
    ):
        client = PrefixClient(peers, timeout_s=1.0, clock=lambda: now_s)
        assert [await client.lookup(request) for _ in range(10)] == [{}] * 10
        assert kvcache.num_lookups == 1
        kvcache.delay_s, now_s = 0.0, 100.99
        assert await client.lookup(request) == {}
        assert kvcache.num_lookups == 1
        now_s = 101.0
        assert await client.lookup(request) == {"worker-1": 5}


async def test_leases_of_clients_that_gave_up_do_not_stay(database: Database, routing: StartRouter) -> None:
    rng = random.Random(7)

    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        routes = {f"r{i}": asyncio.create_task(router.route(f"r{i}")) for i in range(200)}
        for task in rng.sample(list(routes.values()), 150):
            asyncio.get_running_loop().call_later(rng.random() * 0.05, task.cancel)
        num_served = 0
        for request_id, task in routes.items():
            try:
                await router.release((await task).lease_id)
                num_served += 1
            except asyncio.CancelledError:  # the answer may have been on its way
                await router.release("", outcome="cancelled", gateway_id="gateway-0", request_id=request_id)
        assert 0 < num_served < 200
        assert (await router.fleet()).num_in_flight == 0


async def test_what_is_said_of_an_attempt_that_was_given_up_ends_no_lease_of_the_next(
    database: Database, routing: StartRouter
) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        await router.route("a", attempt=1)
        await router.route("a", attempt=2)
        await router.release("", outcome="cancelled", gateway_id="gateway-0", request_id="a", attempt=1)
        assert (await router.fleet()).num_in_flight == 1
        await router.release("", outcome="cancelled", gateway_id="gateway-0", request_id="a", attempt=2)
        assert (await router.fleet()).num_in_flight == 0


async def test_who_waits_is_not_taken_back_with_an_earlier_attempt(database: Database, routing: StartRouter) -> None:
    async with routing(plan=make_plan("worker-0")) as router:
        call = router.stub.Dispatch(timeout=60)
        route = router_pb2.Route(request_id="a", attempt=2, gateway_id="gateway-0", model="llama", resumed=True)
        await call.write(router_pb2.DispatchRequest(route=route))
        release = router_pb2.Release(gateway_id="gateway-0", request_id="a", attempt=1, outcome="cancelled")
        await call.write(router_pb2.DispatchRequest(release=release))
        async with ScriptedWorker.running(database, "worker-0"):
            answer = await call.read()
        assert isinstance(answer, router_pb2.DispatchResponse)
        assert answer.attempt == 2
        assert answer.HasField("lease")
        await call.done_writing()


async def test_a_negative_length_is_an_invalid_argument(database: Database, routing: StartRouter) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        error = await refusal(router, num_prompt_tokens=-1)
        assert error.field == "num_prompt_tokens"


async def test_an_unknown_outcome_is_an_invalid_argument(database: Database, routing: StartRouter) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        with pytest.raises(InvalidArgumentError, match="complete, cancelled, error, moved"):
            await router.release("lease", outcome="lost")


async def test_a_stream_that_cannot_be_read_any_more_ends_with_an_error(
    routing: StartRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release_nothing(release: object) -> None:
        raise RuntimeError("a fault of our own")

    async with routing() as router:
        monkeypatch.setattr(router.service, "release", release_nothing)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await release_once(router.stub, router_pb2.Release(lease_id="a", outcome="complete"))
    assert ended.value.code() is grpc.StatusCode.INTERNAL


async def test_who_waits_for_a_model_that_sleeps_is_served_when_it_is_loaded_whatever_its_objective(
    database: Database, routing: StartRouter
) -> None:
    """The first of them would always be late, and would be refused as soon as it could be answered."""
    plan = make_plan("worker-0", slo=Slo(ttft_s=0.3))
    models = (replace(plan.models[0], min_replicas=0),)
    async with routing(plan=replace(plan, models=models, assignments=()), absent_timeout_s=0.0) as router:
        waiting = [asyncio.create_task(router.route(name, elapsed_s=5.0)) for name in ("a", "b")]
        await eventually(lambda: router.service.fleet_view().num_queued == 2)
        [arrivals] = (await router.fleet()).arrivals
        assert (arrivals.model, arrivals.num_waiting, arrivals.num_arrived) == ("llama", 2, 2)
        await router.service.apply(replace(plan, models=models))
        async with ScriptedWorker.running(database, "worker-0"):
            assert {(await lease).worker_id for lease in waiting} == {"worker-0"}
            hasty = await refusal(router, request_id="hasty", slo={"ttft_s": 0.01})
        assert isinstance(hasty, ResourceExhaustedError), "it is awake, and has other objectives as well"


async def test_a_model_that_is_not_loaded_in_time_is_told_from_one_that_is_away(routing: StartRouter) -> None:
    plan = make_plan("worker-0")
    asleep = replace(plan, models=(replace(plan.models[0], min_replicas=0),), assignments=())
    async with routing(plan=asleep, wake_timeout_s=0.0) as router:
        error = await refusal(router)
        assert isinstance(error, UnavailableError)
        assert "is being loaded" in error.message
        assert error.retry_after_s == 10.0
