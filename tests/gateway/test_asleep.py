"""A model that sleeps is woken by the first request, through a real controller's method; what the client is told."""

from collections.abc import Iterator
from dataclasses import replace

import grpc
import httpx
import pytest

from headway.core.errors import FailedPreconditionError
from headway.core.plan.serving import ServingPlan
from headway.rpc.host import SERVER_OPTIONS
from headway.rpc.interceptors import CallInterceptor
from headway.store.plans import PlanStore
from headway.store.redis import Database
from headway.v1 import controller_pb2, controller_pb2_grpc, inference_pb2, inference_pb2_grpc
from tests.gateway.world import PLAIN_MODEL, Gateway, World, is_ready, make_plan, member, wait_for

COMPLETION = {"model": PLAIN_MODEL, "prompt": "a", "max_tokens": 2}


class ScriptedController(controller_pb2_grpc.ControllerServiceServicer):
    """Attributes:
    asked: models that were to be woken.
    asleep: the plan in which they sleep.
    awake: the plan that wakes them; None where there is no room.
    """

    def __init__(self, plans: PlanStore, asleep: ServingPlan) -> None:
        self.asked: list[str] = []
        self.awake: ServingPlan | None = None
        self._plans = plans
        self.asleep = asleep

    async def WakeModel(  # noqa: N802 - the method's name in the protocol
        self, request: controller_pb2.WakeModelRequest, context: object
    ) -> controller_pb2.WakeModelResponse:
        self.asked.append(request.model)
        if self.awake is None:
            raise FailedPreconditionError("There is no room.", hint="Add workers.", retry_after_s=10.0)
        await self._plans.set_current(self.awake, replaces=self.asleep.plan_id)
        return controller_pb2.WakeModelResponse(plan_id=self.awake.plan_id)


def _num_replicas(gateway: Gateway) -> list[int]:
    with grpc.insecure_channel(gateway.grpc_endpoint) as channel:
        answer = inference_pb2_grpc.InferenceServiceStub(channel).ListModels(inference_pb2.ListModelsRequest())
    return [model.num_replicas for model in answer.models]


@pytest.fixture
def sleeping(world: World, gateway: Gateway) -> Iterator[ScriptedController]:
    """PLAIN_MODEL sleeps; a controller in the world's thread can wake it."""
    awake = make_plan(world.directory)
    models = (awake.models[0], replace(awake.models[1], min_replicas=0))
    asleep = replace(awake, plan_id="plan-asleep", models=models, assignments=awake.assignments[:1])
    database = Database.connect(world.redis_url, namespace=world.namespace)
    controller = ScriptedController(PlanStore(database), asleep)

    async def begin() -> grpc.aio.Server:
        server = grpc.aio.server(interceptors=[CallInterceptor()], options=SERVER_OPTIONS)
        controller_pb2_grpc.add_ControllerServiceServicer_to_server(controller, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        world.members.append(member("controller", "controller-0", f"127.0.0.1:{port}"))
        await world._renew()
        await controller._plans.set_current(asleep, replaces=await controller._plans.current_id())
        return server

    async def end(server: grpc.aio.Server) -> None:
        await controller._plans.set_current(awake, replaces=await controller._plans.current_id())
        del world.members[-1]
        await server.stop(None)
        await database.close()

    server = world.run(begin())
    wait_for(lambda: _num_replicas(gateway) == [1, 0])
    yield controller
    world.run(end(server))
    wait_for(lambda: _num_replicas(gateway) == [1, 1])


def test_the_first_request_wakes_it_and_is_answered(sleeping: ScriptedController, gateway: Gateway) -> None:
    assert is_ready(gateway), "who sleeps is no fault of the stack"
    plan = make_plan(gateway.log.parent, plan_id="plan-awake")
    sleeping.awake = replace(plan, models=sleeping.asleep.models)
    answer = httpx.post(f"{gateway.url}/v1/completions", json=COMPLETION, timeout=30)
    assert answer.status_code == 200, answer.text
    assert httpx.post(f"{gateway.url}/v1/completions", json=COMPLETION, timeout=30).status_code == 200
    assert sleeping.asked == [PLAIN_MODEL], "it is awake"


def test_without_room_the_client_hears_why_and_when_to_come_back(
    sleeping: ScriptedController, gateway: Gateway
) -> None:
    answer = httpx.post(f"{gateway.url}/v1/completions", json=COMPLETION, timeout=30)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert "There is no room." in answer.json()["error"]["message"]


def test_who_only_asks_about_it_wakes_nobody(sleeping: ScriptedController, gateway: Gateway) -> None:
    assert httpx.get(f"{gateway.url}/v1/models/{PLAIN_MODEL}").status_code == 200
    assert sleeping.asked == []
