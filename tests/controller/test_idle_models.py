"""Models that sleep while nobody asks for them, with a real planner, a real Redis and scripted workers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from headway.controller.idle_models import IdleModels
from headway.controller.router_view import ModelSample, RouterView
from headway.core.cluster import Hardware
from headway.core.deployment import Deployment, WorkerOptions
from headway.core.errors import FailedPreconditionError, NotFoundError, UnavailableError
from headway.core.plan.serving import ServingPlan
from headway.store.redis import Database
from headway.v1 import worker_pb2_grpc
from tests.controller.scripted import ScriptedWorker
from tests.controller.stack import Control, Serve, Stack

MIB = 1024**2
ROOMY = 8 * 1024 * MIB


class Sleepy:
    """A controller of two models of which `nap` may sleep after 60 s, and a router that it hears what is set from.

    Attributes:
        present: requests that are there, by model.
        arrived: requests that have come.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack, self.service = stack, stack.service
        self.now_s = 0.0
        self.is_away = False
        self.run_id = "first"
        self.present: dict[str, int] = {}
        self.arrived = 0
        self.idle_models = IdleModels(self.service, plans=stack.plans, view=self._view, clock=lambda: self.now_s)

    async def _view(self) -> RouterView:
        if self.is_away:
            raise UnavailableError("away")
        sample = {name: ModelSample(num_present=num, num_arrived=self.arrived) for name, num in self.present.items()}
        reporting = frozenset((each.model, each.worker_id) for each in self.plan.assignments)
        return RouterView(models=sample, reporting=reporting, run_id=self.run_id)

    @property
    def plan(self) -> ServingPlan:
        plan = self.service.desired_plan
        assert plan is not None
        return plan

    async def pass_time(self, seconds: float) -> None:
        """Looks every ten seconds."""
        for _ in range(int(seconds / 10)):
            self.now_s += 10.0
            await self.idle_models.look()

    def served_by(self, model: str) -> list[str]:
        return sorted(name for name, works in self.service.serving().items() if any(w.model == model for w in works))


@pytest.fixture
async def sleepy(
    controlling: Control, serve: Serve, database: Database, planner: None, make_model: Any, until: Any
) -> AsyncIterator[Callable[..., Any]]:
    """Starts it, with so much memory in each of two workers."""
    async with AsyncExitStack() as exits:

        async def start(*, memory_bytes: int = ROOMY, workers: int = 2, **nap: Any) -> Sleepy:
            for number in range(workers):
                await add_worker(f"worker-{number}", memory_bytes)
            models = (make_model("wake"), make_model("nap", **({"min_replicas": 0, "idle_s": 60.0} | nap)))
            deployment = Deployment(models=models, workers=WorkerOptions(count=workers), profile=False)
            sleepy = Sleepy(await exits.enter_async_context(controlling(deployment, [])))
            await until(lambda: sleepy.service.desired_plan is not None, what="a plan")
            await until(lambda: sleepy.service.serving().keys() and _is_served(sleepy), what="readiness")
            await sleepy.stack.events()
            return sleepy

        async def add_worker(worker_id: str, memory_bytes: int) -> None:
            renews: list[Callable[..., Any]] = []

            async def renew(state: str, model: str) -> None:
                await renews[0](state, model)

            hardware = Hardware(device="cpu", name="Scripted CPU", num_threads=1, memory_bytes=memory_bytes)
            worker = ScriptedWorker(worker_id, database, on_state=renew, hardware=hardware)
            add = worker_pb2_grpc.add_WorkerServiceServicer_to_server
            renews.append(await serve("worker", worker_id, lambda server: add(worker, server)))

        yield start


def _is_served(sleepy: Sleepy) -> bool:
    wanted = {(each.worker_id, each.model) for each in sleepy.plan.assignments}
    return wanted <= {(name, work.model) for name, works in sleepy.service.serving().items() for work in works}


async def test_an_idle_model_is_unloaded_and_gets_its_place_back(sleepy: Any, until: Any) -> None:
    stack = await sleepy()
    before = stack.plan
    await stack.pass_time(60)
    assert not stack.plan.asleep
    await stack.pass_time(10)
    assert stack.plan.asleep == {"nap"}
    assert stack.service.status().asleep == ("nap",)
    await until(lambda: not stack.served_by("nap"), what="the end of nap")
    events = await stack.stack.events()
    assert [event.partition(": ")[2] for event in events] == ["drain nap"], "the other one was disturbed"

    woken = await stack.idle_models.wake("nap")
    assert stack.plan.plan_id == woken
    assert set(stack.plan.assignments) == set(before.assignments)
    assert await stack.idle_models.wake("nap") == woken, "it is awake"
    await until(lambda: stack.served_by("nap"), what="nap")
    assert [event.partition(": ")[2] for event in await stack.stack.events()] == ["load nap"]
    with pytest.raises(NotFoundError):
        await stack.idle_models.wake("nobody")


async def test_who_is_asked_for_stays_and_who_may_not_sleep_too(sleepy: Any) -> None:
    stack = await sleepy()
    for _ in range(3):
        await stack.pass_time(50)
        stack.arrived += 1
        stack.present["nap"] = 0
    stack.present["nap"] = 1
    await stack.pass_time(200)
    assert not stack.plan.asleep
    stack.present["nap"] = 0
    await stack.pass_time(70)
    assert stack.plan.asleep == {"nap"}, "the other one has no min: 0"


async def test_an_outage_of_the_router_or_another_router_puts_nobody_to_sleep(sleepy: Any) -> None:
    stack = await sleepy()
    await stack.pass_time(50)
    stack.is_away = True
    with pytest.raises(UnavailableError):
        await stack.pass_time(10)
    stack.now_s += 1000
    stack.is_away = False
    await stack.pass_time(60)
    assert not stack.plan.asleep
    stack.run_id = "second"
    await stack.pass_time(60)
    assert not stack.plan.asleep


async def test_requests_that_wait_at_the_router_wake_it_as_well(sleepy: Any) -> None:
    stack = await sleepy()
    await stack.pass_time(70)
    assert stack.plan.asleep == {"nap"}
    stack.present["nap"] = 1
    await stack.pass_time(10)
    assert not stack.plan.asleep


async def test_where_there_is_no_room_it_is_told_and_the_planner_has_peace(
    sleepy: Any, make_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = await sleepy()
    await stack.pass_time(70)
    large = replace(make_model("large").spec, num_layers=64, hidden_size=4096, intermediate_size=11008)
    models = (make_model("wake"), make_model("nap", min_replicas=0, idle_s=60.0, spec=large))
    plan = replace(stack.plan, plan_id="", models=models)
    await stack.service.revise(plan, replaces=stack.plan.plan_id)
    assert stack.plan.asleep == {"nap"}
    asked: list[int] = []
    propose = stack.service.propose_awake

    async def counted(*names: str) -> ServingPlan:
        asked.append(len(names))
        return await propose(*names)

    monkeypatch.setattr(stack.service, "propose_awake", counted)
    for _ in range(3):
        with pytest.raises(FailedPreconditionError, match="There is no room to load 'nap' again") as caught:
            await stack.idle_models.wake("nap")
        assert caught.value.retry_after_s == 10.0
    assert len(asked) == 1
    assert set(stack.idle_models.refusals) == {"nap"}
    stack.now_s += 11.0
    with pytest.raises(FailedPreconditionError):
        await stack.idle_models.wake("nap")
    assert len(asked) == 2
    await stack.pass_time(70)
    assert not stack.idle_models.refusals
    assert not await stack.stack.events() or stack.served_by("wake")


async def test_two_who_wake_it_at_once_share_a_plan(sleepy: Any) -> None:
    stack = await sleepy()
    await stack.pass_time(70)
    first, second = await asyncio.gather(stack.idle_models.wake("nap"), stack.idle_models.wake("nap"))
    assert first == second


async def test_all_may_sleep_and_the_next_controller_knows(
    sleepy: Any, controlling: Control, make_model: Any, until: Any
) -> None:
    stack = await sleepy()
    models = tuple(replace(model, min_replicas=0, idle_s=60.0) for model in stack.plan.models)
    await stack.service.revise(replace(stack.plan, plan_id="", models=models), replaces=stack.plan.plan_id)
    await stack.pass_time(80)
    assert stack.plan.asleep == {"nap", "wake"}
    assert stack.plan.assignments == ()
    await until(lambda: not stack.served_by("wake"), what="the end of both")
    assert stack.service.status().ready
    woken = await stack.idle_models.wake("wake")
    assert stack.plan.asleep == {"nap"}
    assert (await stack.stack.plans.current_id()) == woken


async def test_a_plan_for_others_leaves_it_asleep_and_a_changed_one_is_planned(sleepy: Any, make_model: Any) -> None:
    stack = await sleepy()
    await stack.pass_time(70)
    nap = stack.plan.model("nap")
    plan = await stack.service.propose([*stack.plan.models, make_model("third")])
    assert plan.asleep == {"nap"}
    assert {each.model for each in plan.assignments} == {"wake", "third"}
    plan = await stack.service.propose([stack.plan.models[0], replace(nap, max_model_len=128)])
    assert not plan.asleep


async def test_where_not_all_fit_those_that_may_sleep_do_from_the_beginning(sleepy: Any, make_model: Any) -> None:
    large = replace(make_model("large").spec, num_layers=64, hidden_size=4096, intermediate_size=11008)
    stack = await sleepy(spec=large)
    assert stack.plan.asleep == {"nap"}
    assert stack.served_by("wake")
