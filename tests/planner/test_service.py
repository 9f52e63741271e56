"""The planner as a process of its own: gRPC in, profiles from a real Redis."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.core.hardware.profile import HardwareProfile, LinkFit, LinkProfile, Machine
from headway.core.latency import LatencyModel
from headway.core.piecewise import PiecewiseLinear
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.core.profile import Profile, profile_id
from headway.core.stage_profile import StageProfile
from headway.planner.service import PlannerService
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.status import error_from_rpc
from headway.store.documents import Documents
from headway.store.hardware import HardwareTimings
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.store.schema import HARDWARE_LINKS, PROFILE, STAGE_PROFILE
from headway.v1 import common_pb2, planner_pb2, planner_pb2_grpc


@pytest.fixture
async def planner(redis_url: str, namespace: str, database: Database) -> AsyncIterator[Any]:
    """A stub on a planner process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headway.planner", "--redis-url", redis_url, "--namespace", namespace)
    )
    while not (members := await Membership(database).members("planner")):
        assert process.returncode is None
        await asyncio.sleep(0.05)
    async with grpc.aio.insecure_channel(members[0].endpoint) as channel:
        yield planner_pb2_grpc.PlannerServiceStub(channel)
    process.terminate()
    assert await process.wait() == 0


def make_profile(model: ModelDeployment, hardware: Any) -> Profile:
    return Profile(
        profile_id=profile_id(model.spec, hardware),
        architecture=model.spec.architecture,
        model_hash=model.spec.content_hash,
        hardware=hardware,
        measurements=(),
        latency=LatencyModel(
            base_s=1e-3,
            per_prefill_token_s=1e-4,
            per_prefill_pair_s=0.0,
            per_decode_s=1e-4,
            per_context_token_s=0.0,
        ),
        created_at_s=time.time(),
    )


async def test_a_plan_is_made_certified_and_explained_over_grpc(
    planner: Any, database: Database, make_model: Any, make_worker: Any
) -> None:
    model, worker = make_model(), make_worker()
    profile = make_profile(model, worker.hardware)
    await Documents(database, PROFILE, Profile).put(profile, profile.profile_id)
    request = planner_pb2.MakePlanRequest(
        models=[to_pb(model, common_pb2.ModelDeployment)], workers=[to_pb(worker, planner_pb2.PlanWorker)]
    )

    made = (await planner.MakePlan(request)).plan
    plan = from_pb(made, ServingPlan)
    assert plan.models == (model,)
    assert plan.assignments[0].prediction.profile_id == profile.profile_id
    assert (await planner.CertifyPlan(planner_pb2.CertifyPlanRequest(plan=made))).violations == []
    assert (await planner.ExplainPlan(planner_pb2.ExplainPlanRequest(plan=made))).sentences

    made.assignments[0].num_blocks += 1
    assert (await planner.CertifyPlan(planner_pb2.CertifyPlanRequest(plan=made))).violations

    request.current.CopyFrom(made)
    again = from_pb((await planner.MakePlan(request)).plan, ServingPlan)
    assert again.plan_id > plan.plan_id
    assert again.assignments == plan.assignments

    del request.workers[:]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await planner.MakePlan(request)
    error = error_from_rpc(caught.value)
    assert isinstance(error, FailedPreconditionError)
    assert error.hint


async def test_a_plan_reads_the_links_that_were_measured_until_they_are_forgotten(
    planner: Any, database: Database, make_model: Any, make_worker: Any
) -> None:
    workers = [make_worker("worker-0"), make_worker("worker-1")]
    fit = LinkFit(
        collective="all_reduce",
        num_ranks=2,
        latency_s=1e-3,
        bytes_per_s=1e9,
        relative_error=0.1,
        curve=PiecewiseLinear(sizes=(1024.0,), seconds=(1e-3,)),
    )
    machine = Machine(hardware=workers[0].hardware, machine="host")
    store = HardwareTimings(database)
    await store.publish_links(HardwareProfile(machine=machine, created_at_s=1.0, timings=(), links=(fit,)))
    request = planner_pb2.MakePlanRequest(
        models=[to_pb(make_model(), common_pb2.ModelDeployment)],
        workers=[to_pb(worker, planner_pb2.PlanWorker) for worker in workers],
        limits=planner_pb2.EngineLimits(tp=2),
    )
    made = (await planner.MakePlan(request)).plan
    sums = {link.operation: link for link in from_pb(made, ServingPlan).assignments[0].links}["all_reduce"]
    assert (sums.provenance, sums.profile_id, sums.latency_s) == ("measured", machine.profile_id, 1e-3)
    sentences = (await planner.ExplainPlan(planner_pb2.ExplainPlanRequest(plan=made))).sentences
    assert any(f"hardware profile {machine.profile_id}" in sentence for sentence in sentences)

    await store.forget(machine.profile_id)
    links = from_pb((await planner.MakePlan(request)).plan, ServingPlan).assignments[0].links
    assert {link.provenance for link in links} == {"estimated"}


async def test_an_emulated_device_takes_what_was_measured_on_a_real_one(
    planner: Any, database: Database, make_model: Any, make_worker: Any
) -> None:
    model = make_model()
    real = Hardware(device="cuda", name="Tesla V100-SXM2-16GB", num_threads=4, memory_bytes=16 * 10**9)
    emulated = replace(real, name="V100-16", num_threads=1, is_emulated=True)
    profile = make_profile(model, real)
    await Documents(database, PROFILE, Profile).put(profile, profile.profile_id)
    request = planner_pb2.MakePlanRequest(
        models=[to_pb(model, common_pb2.ModelDeployment)],
        workers=[to_pb(replace(make_worker(), hardware=emulated), planner_pb2.PlanWorker)],
    )
    made = (await planner.MakePlan(request)).plan
    (assignment,) = from_pb(made, ServingPlan).assignments
    assert assignment.stage_latencies == (profile.latency,)
    assert (await planner.CertifyPlan(planner_pb2.CertifyPlanRequest(plan=made))).violations == []
    assert (await planner.ExplainPlan(planner_pb2.ExplainPlanRequest(plan=made))).sentences


async def test_without_redis_planning_is_unavailable(tmp_path: Any, make_model: Any, make_worker: Any) -> None:
    database = Database.connect(f"unix://{tmp_path}/none.sock", namespace="none")
    service = PlannerService(
        Documents(database, PROFILE, Profile),
        stage_profiles=Documents(database, STAGE_PROFILE, StageProfile),
        link_profiles=Documents(database, HARDWARE_LINKS, LinkProfile),
    )
    with pytest.raises(UnavailableError, match="Redis"):
        await service.make([make_model()], [make_worker()], limits=EngineLimits(), current=None)
    await database.close()
