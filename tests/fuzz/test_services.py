"""What another process sends: every method of every service answers any message, or refuses it. The methods come from
the descriptors, so new ones are covered.
"""

import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from headway.controller.cell.records import MemoryRecords
from headway.controller.cell.servicer import CellServicer
from headway.controller.launchers.local import LocalLauncher
from headway.controller.process import ProcessSpec
from headway.controller.supervisor import Supervisor
from headway.core.deployment import Deployment
from headway.core.hardware.cell import Cell
from headway.core.model import ModelSpec
from headway.core.profiling_units import ProfilingUnits
from headway.kvcache.servicer import KvCacheServicer
from headway.rpc.convert import load_order_to_pb, to_pb
from headway.rpc.peers import Peers
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.v1 import (
    cell_pb2,
    cell_pb2_grpc,
    common_pb2,
    controller_pb2,
    controller_pb2_grpc,
    kvcache_pb2,
    kvcache_pb2_grpc,
    planner_pb2,
    profiler_pb2,
    router_pb2,
    worker_pb2,
)
from tests.controller.stack import Control, Serve, always
from tests.fuzz.calls import Plain, call_all
from tests.fuzz.messages import GROUP, ORDER, PROGRAM
from tests.kvcache.conftest import StartKvCache
from tests.profiler.conftest import ScriptedWorker
from tests.profiler.exchange import STAGES
from tests.router.conftest import StartRouter
from tests.router.harness import make_plan
from tests.router.scripted import ScriptedWorker as ScriptedRouterWorker
from tests.worker.conftest import Bench, load, serving

pytestmark = pytest.mark.timeout(0)

SUBJECT = ProfilingUnits(
    model="toy",
    is_training=False,
    graph_hash="g",
    parameters=16,
    weight_bytes=64,
    activation_bytes=64,
    gradient_bytes=0,
    optimizer_bytes=0,
    operators=(),
    layers=(),
    program=PROGRAM.content_hash,
)
CHANGES = ("LoadModel", "UnloadModel", "Drain")
"""Methods that change what a worker serves."""


def methods_of(service: ServiceDescriptor, *, last: tuple[str, ...] = ()) -> list[MethodDescriptor]:
    """All methods: those that change something before those that tell of it, and at the very end the `last` ones."""
    tells = ("Get", "List", "Watch")
    return sorted(service.methods, key=lambda method: (method.name in last, method.name.startswith(tells)))


async def endpoint_of(database: Database, kind: str) -> str:
    (member,) = await Membership(database).members(kind)
    return member.endpoint


async def test_the_kvcache_service(database: Database, caching: StartKvCache, serve: Serve) -> None:
    add = kvcache_pb2_grpc.add_KvCacheServiceServicer_to_server
    async with caching() as kvcache:
        await serve("kvcache", "kvcache", lambda server: add(KvCacheServicer(kvcache.service), server))
        async with grpc.aio.insecure_channel(await endpoint_of(database, "kvcache")) as channel:
            service = kvcache_pb2.DESCRIPTOR.services_by_name["KvCacheService"]
            await call_all(channel, methods_of(service), plain={})


async def test_the_planner(database: Database, planner: None) -> None:
    async with grpc.aio.insecure_channel(await endpoint_of(database, "planner")) as channel:
        await call_all(channel, methods_of(planner_pb2.DESCRIPTOR.services_by_name["PlannerService"]), plain={})


async def test_the_controller(
    database: Database, controlling: Control, deployment: Deployment, planner: None, serve: Serve
) -> None:
    ended: list[bool] = []

    async def end() -> None:
        ended.append(True)

    async with controlling(deployment, []) as stack:
        servicer = stack.servicer(on_shutdown=end)
        add = controller_pb2_grpc.add_ControllerServiceServicer_to_server
        await serve("controller", "controller", lambda server: add(servicer, server))
        async with grpc.aio.insecure_channel(await endpoint_of(database, "controller")) as channel:
            service = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]
            await call_all(channel, methods_of(service, last=("Shutdown",)), plain={})
    assert ended


async def test_a_cell(database: Database, serve: Serve, tmp_path: Path) -> None:
    """Its worker, whichever run of it is ended, is there again."""
    membership = Membership(database)
    spec = ProcessSpec(name="worker-0", kind="worker", command=("sleep", "1000"), environment={}, runtime={})
    async with Peers(membership).watching() as peers:
        supervisor = Supervisor(
            [spec],
            launcher=LocalLauncher(tmp_path / "logs"),
            records=MemoryRecords(),
            membership=membership,
            peers=peers,
            may_act=always,
        )
        await supervisor.start()
        watching = asyncio.create_task(supervisor.watch(on_death=lambda name, pid: None))
        try:
            add = cell_pb2_grpc.add_CellServiceServicer_to_server
            await serve("cell", "cell", lambda server: add(CellServicer(supervisor), server))
            first = supervisor.processes["worker-0"].handle
            assert first is not None
            plain = {"EndRun": [cell_pb2.EndRunRequest(worker_id="worker-0", pid=pid) for pid in (first.pid, 1)]}
            async with grpc.aio.insecure_channel(await endpoint_of(database, "cell")) as channel:
                await call_all(channel, methods_of(cell_pb2.DESCRIPTOR.services_by_name["CellService"]), plain=plain)
            async with asyncio.timeout(60):
                while (run := supervisor.processes["worker-0"].handle) in (None, first):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert run is not None
            assert not watching.done()
        finally:
            await supervisor.stop()
            await watching


async def test_the_router(database: Database, routing: StartRouter) -> None:
    """And it goes on giving places."""
    plain: Plain = {
        "Dispatch": [
            router_pb2.DispatchRequest(
                route=route("r", num_sequences=2, elapsed_s=0.1, tenant="gold", tenant_weight=2.0)
            ),
            router_pb2.DispatchRequest(route=route("s", slo=common_pb2.Slo(ttft_s=9.0))),
            router_pb2.DispatchRequest(release=router_pb2.Release(lease_id="l", outcome="complete", ttft_s=0.1)),
            router_pb2.DispatchRequest(first_token=router_pb2.FirstToken(lease_id="l", ttft_s=0.1)),
        ]
    }
    service = router_pb2.DESCRIPTOR.services_by_name["RouterService"]
    async with (
        ScriptedRouterWorker.running(database, "worker-0"),
        ScriptedRouterWorker.running(database, "worker-1"),
        routing(plan=make_plan("worker-0", "worker-1")) as router,
    ):
        await call_all(router.channel, methods_of(service), plain=plain, waiting=["Dispatch"])
        await router.release((await router.route("plain")).lease_id)
        fleet = await router.fleet()
        assert {group.state for group in fleet.groups} == {"ready"}


def route(request_id: str, **fields: Any) -> router_pb2.Route:
    known: dict[str, Any] = {
        "model": "llama",
        "gateway_id": "gateway-0",
        "num_prompt_tokens": 20,
        "max_output_tokens": 8,
    }
    return router_pb2.Route(request_id=request_id, **known, **fields)


async def test_the_profiler(endpoint: str, worker: ScriptedWorker, spec: ModelSpec) -> None:
    plain: Plain = {
        "ProfileModel": [
            profiler_pb2.ProfileModelRequest(
                spec=to_pb(spec, common_pb2.ModelSpec), worker_id=worker.worker_id, model=worker.model
            )
        ],
        "ImportProfiles": [
            profiler_pb2.ImportProfilesRequest(content=content, hardware="V100-16")
            for content in (json.dumps(STAGES).encode(), gzip.compress(json.dumps(STAGES).encode()))
        ],
        "CaptureModel": [profiler_pb2.CaptureModelRequest(source="zoo:nothing", batch=1, deadline_s=20.0)],
        "StartMeasuring": [
            profiler_pb2.StartMeasuringRequest(
                subject=to_pb(SUBJECT, profiler_pb2.Subject),
                programs=[to_pb(PROGRAM, common_pb2.Program)],
                share=0.5,
                longest_s=10.0,
            )
        ],
        "ProfileHardware": [
            profiler_pb2.ProfileHardwareRequest(
                wanted=profiler_pb2.HardwareWanted(families=["matmul"], max_ranks=1), share=1.0
            )
        ],
    }
    async with grpc.aio.insecure_channel(endpoint) as channel:
        await call_all(
            channel,
            methods_of(profiler_pb2.DESCRIPTOR.services_by_name["ProfilerService"]),
            plain=plain,
            costly=["CaptureModel"],
            waiting=["ProfileModel", "ProfileHardware", "WatchMeasuring"],
        )


async def test_a_worker(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whatever it is sent, a plain request at the end is answered what it was before."""
    monkeypatch.setattr("headway.worker.service._QUIET_S", 0.0)  # it is measured between requests
    service = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]
    async with serving() as bench, grpc.aio.insecure_channel(bench.endpoint) as channel:
        await load(bench, tiny)
        before = await answer(bench)
        for method in methods_of(service, last=CHANGES):
            await call_all(
                channel,
                [method],
                plain=worker_messages(tiny, bench.endpoint),
                costly=["MeasurePrograms", "MeasureHardware"],
                waiting=["LoadModel", "WatchLoad", "WatchBlocks", "MeasureHardware"],
            )
            if method.name in CHANGES:
                await load(bench, tiny)
            assert await answer(bench) == before, f"{method.name} has changed what a neighbour is answered"
        assert "crashed" not in bench.states


def worker_messages(tiny: Path, endpoint: str) -> Plain:
    order = replace(ORDER, model="other", directory=str(tiny), num_blocks=8)
    there = worker_pb2.MoveTarget(worker_id="worker-1", endpoint=endpoint)
    cell = Cell(family="matmul", dtype="float32", extents=(8, 8, 8))
    return {
        "LoadModel": [load_order_to_pb(order)],
        "UnloadModel": [worker_pb2.UnloadModelRequest(model="other")],
        "Drain": [worker_pb2.DrainRequest(deadline_s=1.0, targets=[there], model="tiny")],
        "GenerateTokens": [worker_pb2.GenerateTokensRequest(submit_group=GROUP)],
        "InferSequences": [worker_pb2.InferSequencesRequest(request_id="r", model="tiny", sequences=[{}])],
        "MeasureStep": [worker_pb2.MeasureStepRequest(prefill_tokens=8, num_decodes=2, context_tokens=16)],
        "MeasurePrograms": [
            worker_pb2.MeasureProgramsRequest(programs=[to_pb(PROGRAM, common_pb2.Program)], share=1.0)
        ],
        "MeasureHardware": [worker_pb2.MeasureHardwareRequest(cells=[to_pb(cell, common_pb2.Cell)], share=1.0)],
        "SetPins": [worker_pb2.SetPinsRequest(model="tiny", pins=[{"name": "a", "token_ids": range(20, 56)}])],
        "SetSharding": [worker_pb2.SetShardingRequest(epoch="e", weights=[1.0])],
        "ReadBlocks": [worker_pb2.ReadBlocksRequest(model="tiny", block_hashes=[bytes(16)])],
        "FetchBlocks": [
            worker_pb2.FetchBlocksRequest(
                model="tiny", source_endpoint=endpoint, chains=[{"block_hashes": [bytes(16)]}], num_sequences=1
            )
        ],
        "MoveSequences": [worker_pb2.MoveSequencesRequest(request_id="r-0", target=there)],
    }


async def answer(bench: Bench) -> list[int]:
    """The tokens of a greedy request."""
    sampling = common_pb2.SamplingParams(max_tokens=12, temperature=0.0, top_p=1.0, ignore_eos=True)
    sequence = worker_pb2.SubmitSequence(
        request_id="plain", model="tiny", prompt_token_ids=range(30, 50), sampling=sampling
    )
    call = bench.stub.GenerateTokens(iter([worker_pb2.GenerateTokensRequest(submit=sequence)]))
    outputs = [output async for message in call for output in message.outputs]
    assert outputs[-1].error.message == ""
    return [token for output in outputs for token in output.token_ids]
