"""The controller over real gRPC and Redis. Where processes die they are real ones; elsewhere the planner, the profiler
and scripted workers serve from this process, which is quicker."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.deployment import Deployment, WorkerOptions
from headway.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from headway.core.profile import Profile
from headway.profiler.captures import Captures
from headway.profiler.hardware.service import HardwareService
from headway.profiler.imports import ImportedProfiles
from headway.profiler.jobs.bench_workers import BenchWorkers
from headway.profiler.jobs.jobs import MeasuringJobs
from headway.profiler.jobs.store import JobStore
from headway.profiler.machines import Machines
from headway.profiler.profile_store import ProfileStore
from headway.profiler.service import ProfilerService
from headway.profiler.servicer import ProfilerServicer
from headway.rpc.peers import Peers
from headway.store.documents import Documents
from headway.store.hardware import HardwareTimings
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.store.schema import DEPLOYMENT, PROFILE
from headway.v1 import controller_pb2, controller_pb2_grpc, profiler_pb2_grpc
from tests.controller.scripted import ScriptedWorker
from tests.controller.stack import Control, Serve


async def test_from_nothing_to_serving_through_deaths_to_nothing(
    controlling: Control, deployment: Deployment, process_of: Any, until: Any
) -> None:
    names = {"worker-0": "worker", "worker-1": "worker", "planner": "planner"}
    specs = [process_of(name, kind=kind) for name, kind in names.items()]
    deployment = replace(deployment, workers=WorkerOptions(count=2))
    async with controlling(deployment, specs) as stack:
        service = stack.service
        seen = [service.status()]
        assert not seen[0].ready
        assert "to start" in seen[0].waiting_for

        def ready() -> bool:
            seen.append(service.status())
            return seen[-1].ready

        await until(ready, what="readiness")
        assert any("llama to load on worker-" in status.waiting_for for status in seen)
        assert [status.progress for status in seen] == sorted(status.progress for status in seen)
        assert seen[-1].progress == 1.0
        assert sorted(await stack.events()) == ["worker-0: load llama", "worker-1: load llama"]
        plan = await service.plan("")
        assert await service.plan_ids() == [plan.plan_id]
        assert {process.state for process in seen[-1].processes} == {"ready"}

        stack.kill("worker-0")
        await until(lambda: not service.status().ready, what="the death")
        assert "worker-0" in service.status().waiting_for
        await until(ready, what="readiness again")
        assert await stack.events() == ["worker-0: load llama"]
        assert service.fault() is None
        restarted = {process.name: process.num_restarts for process in service.status().processes}
        assert restarted["worker-0"] == 1
        assert (await service.plan("")).plan_id == plan.plan_id

        await service.shutdown(grace_s=1.0)
        assert sorted(await stack.events()) == ["worker-0: drain llama", "worker-1: drain llama"]
        # What a worker last said of itself is known for up to half a second after its end.
        await until(
            lambda: {process.state for process in service.status().processes[1:]} == {"stopped"}, what="the end"
        )
        pids = [process.pid for process in service.status().processes[1:]]
        assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_the_next_controller_goes_on_where_the_last_one_died(
    controlling: Control, deployment: Deployment, planner: None, process_of: Any, until: Any
) -> None:
    specs = [process_of("worker-0", kind="worker")]
    async with controlling(deployment, specs) as first:
        await until(lambda: first.service.status().ready, what="readiness")
        plan = await first.service.plan("")
        await first.events()

    async with controlling(deployment, specs) as second:
        await until(lambda: second.service.status().ready, what="adoption", timeout_s=2.0)
        assert (await second.service.plan("")).plan_id == plan.plan_id
        assert await second.events() == [], "a worker that serves was loaded again"
        second.kill("worker-0")
        await until(lambda: not second.service.status().ready, what="the death")
        await until(lambda: second.service.status().ready, what="readiness again")
        assert await second.events() == ["worker-0: load llama"]
        await second.service.shutdown(grace_s=1.0)


async def test_another_plan_is_shown_checked_and_applied(
    controlling: Control,
    deployment: Deployment,
    planner: None,
    worker: ScriptedWorker,
    until: Any,
    make_model: Any,
    database: Database,
) -> None:
    worker.memory_bytes = 512 * 1024**2  # no room for two at once
    async with controlling(deployment, []) as stack:
        service = stack.service
        await until(lambda: service.status().ready, what="readiness")
        plan = await service.plan("")
        await stack.events()
        (assignment,) = plan.assignments

        assert await service.apply(plan, dry_run=True) == []
        qwen = replace(plan, models=(make_model("qwen"),), assignments=(replace(assignment, model="qwen"),), plan_id="")
        changes = [f"worker-0: drain llama, load qwen ({assignment.num_blocks} blocks)"]
        assert [str(change) for change in await service.apply(qwen, dry_run=True)] == changes
        assert service.status().plan_id == plan.plan_id

        with pytest.raises(InvalidArgumentError, match=r"breaks 1 rules.*kv_cache_bytes"):
            await service.apply(
                replace(plan, assignments=(replace(assignment, num_blocks=assignment.num_blocks - 1),)), dry_run=True
            )
        missing = replace(plan.workers[0], worker_id="worker-7")
        with pytest.raises(FailedPreconditionError, match="worker-7, which is not running"):
            await service.apply(replace(plan, workers=(*plan.workers, missing)), dry_run=True)

        assert [str(change) for change in await service.apply(qwen, dry_run=False)] == changes
        applied = await service.plan("")
        assert applied.plan_id > plan.plan_id
        await until(lambda: service.status().ready, what="the new model")
        assert await stack.events() == ["worker-0: drain llama", "worker-0: load qwen"]
        assert await service.plan_ids() == [applied.plan_id, plan.plan_id]
        stored = await Documents(database, DEPLOYMENT, Deployment).get()
        assert stored is not None
        assert [model.name for model in stored.models] == ["qwen"]

        assert await service.apply(plan, dry_run=False), "an old plan can be applied again"
        assert (await service.plan("")).plan_id == plan.plan_id
        with pytest.raises(NotFoundError, match="plan-x"):
            await service.plan("plan-x")


async def test_plans_and_status_travel_over_grpc(
    controlling: Control,
    deployment: Deployment,
    database: Database,
    planner: None,
    worker: ScriptedWorker,
    serve: Serve,
    until: Any,
) -> None:
    ended: list[bool] = []

    async def end() -> None:
        ended.append(True)

    async with controlling(deployment, []) as stack:
        servicer = stack.servicer(on_shutdown=end)
        add = controller_pb2_grpc.add_ControllerServiceServicer_to_server
        await serve("controller", "controller", lambda server: add(servicer, server))
        await until(lambda: stack.service.status().ready, what="readiness")
        # The controller hears of the load's end from the worker itself, and of its state with the lease.
        await until(lambda: [each.state for each in stack.service.status().workers] == ["ready"], what="the lease")
        (member,) = await stack.membership.members("controller")
        async with grpc.aio.insecure_channel(member.endpoint) as channel:
            stub = controller_pb2_grpc.ControllerServiceStub(channel)
            status = await stub.GetStatus(controller_pb2.GetStatusRequest())
            assert status.ready
            assert not status.HasField("fault")
            assert [(w.worker_id, w.state) for w in status.workers] == [("worker-0", "ready")]
            assert [process.name for process in status.processes] == ["controller"]

            shown = await stub.GetPlan(controller_pb2.GetPlanRequest())
            assert shown.plan.plan_id == status.plan_id
            assert list(shown.plan_ids) == [status.plan_id]
            request = controller_pb2.ApplyPlanRequest(plan=shown.plan, dry_run=True)
            request.plan.assignments[0].num_blocks = 64
            request.plan.assignments[0].kv_cache_bytes = 64 * 16 * 512
            request.plan.assignments[0].max_model_len = 1024
            changes = (await stub.ApplyPlan(request)).changes
            assert [change.split(",")[0] for change in changes] == ["worker-0: reload llama (64 blocks"]

            await stub.Shutdown(controller_pb2.ShutdownRequest(grace_s=1.0))
            assert ended == [True]
            assert (await stack.events())[-1] == "worker-0: drain llama"


async def test_without_a_deployment_the_controller_says_so(redis_url: str, namespace: str, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headway.controller", "--redis-url", redis_url, "--namespace", namespace),
        *("--state-dir", str(tmp_path)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"Redis holds no deployment. `headway up` writes one." in errors


async def test_a_profile_is_measured_once_all_serves_and_nothing_is_reloaded(
    controlling: Control,
    deployment: Deployment,
    planner: None,
    worker: ScriptedWorker,
    serve: Serve,
    until: Any,
    database: Database,
) -> None:
    async with (
        controlling(replace(deployment, profile=True), []) as stack,
        Peers(Membership(database)).watching() as peers,
    ):
        machines, pool, catalogue = Machines(), BenchWorkers(peers), built_in_catalogue()
        profiler = ProfilerServicer(
            ProfilerService(peers, Documents(database, PROFILE, Profile), machines=machines),
            imported=ImportedProfiles(database, catalogue=catalogue),
            captures=Captures(),
            jobs=MeasuringJobs(pool, machines, JobStore(database), catalogue=catalogue),
            profile_store=ProfileStore(database, pool),
            hardware=HardwareService(pool, machines, HardwareTimings(database)),
        )
        add = profiler_pb2_grpc.add_ProfilerServiceServicer_to_server
        await serve("profiler", "profiler", lambda server: add(profiler, server))
        service = stack.service
        await until(lambda: service.status().ready, what="readiness")
        estimated = await service.plan("")
        await until(lambda: service.status().plan_id != estimated.plan_id, what="measured predictions")
        measured = await service.plan("")
        (prediction,) = [assignment.prediction for assignment in measured.assignments]
        assert prediction.profile_id
        assert prediction.latency.per_prefill_token_s == pytest.approx(1e-4, rel=1e-3)
        assert service.status().ready
        assert await stack.events() == ["worker-0: load llama"]


async def test_a_checkpoint_that_does_not_load_is_a_fault(
    controlling: Control, deployment: Deployment, planner: None, worker: ScriptedWorker, until: Any, make_model: Any
) -> None:
    broken = replace(deployment, models=(make_model("llama", directory="/models/missing"),))
    async with controlling(broken, []) as stack:
        await until(lambda: stack.service.fault() is not None, what="the fault")
        fault = stack.service.fault()
        assert isinstance(fault, NotFoundError)
        assert "/models/missing" in fault.message
        assert not stack.service.status().ready


async def test_a_model_that_fits_no_worker_is_a_fault(
    controlling: Control, deployment: Deployment, planner: None, worker: ScriptedWorker, until: Any
) -> None:
    worker.memory_bytes = 2**20
    async with controlling(deployment, []) as stack:
        await until(lambda: stack.service.fault() is not None, what="the fault")
        fault = stack.service.fault()
        assert isinstance(fault, FailedPreconditionError)
        assert "fits no worker" in fault.message
        assert fault.hint


async def test_loads_that_keep_breaking_are_a_fault_until_one_succeeds(
    controlling: Control, deployment: Deployment, planner: None, worker: ScriptedWorker, until: Any
) -> None:
    worker.num_failing_loads = 3
    async with controlling(deployment, []) as stack:
        await until(lambda: stack.service.fault() is not None, what="the fault")
        assert "lost 3 times while it loaded llama" in str(stack.service.fault())
        await until(lambda: stack.service.status().ready, what="readiness after all")
        assert stack.service.fault() is None
