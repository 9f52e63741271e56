"""The planner's calls for placing models, over gRPC to a process of its own."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from headway.cli.placement.problem import ProblemOptions, make_problem, read_inputs
from headway.cli.search.planner_link import PlannerLink, planner_link
from headway.core.catalogue import Provenance
from headway.core.errors import InvalidArgumentError, NotFoundError, UnauthenticatedError
from headway.core.placement_problem import PlacementProblem, WorkloadSource
from headway.core.plan.placement import PlacementPlan
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.status import error_from_rpc
from headway.v1 import placement_pb2, planner_pb2_grpc


@pytest.fixture
async def planner(tmp_path: Path) -> AsyncIterator[PlannerLink]:
    async with planner_link(tmp_path / "state") as planner:
        yield planner


@asynccontextmanager
async def streaming(planner: PlannerLink) -> AsyncIterator["planner_pb2_grpc.PlannerServiceAsyncStub"]:
    """A stub for calls that stream both ways, whose faults are gRPC's own."""
    async with grpc.aio.insecure_channel(await planner.find()) as channel:
        yield planner_pb2_grpc.PlannerServiceStub(channel)


def metadata(planner: PlannerLink) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {planner.access.token}"),)


@pytest.fixture
def problem(make_problem: Any) -> PlacementProblem:
    problem: PlacementProblem = make_problem(WorkloadSource(spec="poisson:rate=5", duration_s=100.0))
    return problem


async def test_a_placement_is_planned_certified_and_spoilt(planner: PlannerLink, problem: PlacementProblem) -> None:
    start = placement_pb2.PlanPlacementStart(problem=to_pb(problem, placement_pb2.PlacementProblem))

    async def requests() -> AsyncIterator[placement_pb2.PlanPlacementRequest]:
        yield placement_pb2.PlanPlacementRequest(start=start)

    async with streaming(planner) as stub:
        told = [each async for each in stub.PlanPlacement(requests(), metadata=metadata(planner))]
        assert all(each.HasField("progress") for each in told[:-1])
        plan = told[-1].plan
        assert from_pb(plan, PlacementPlan).problem == problem
        again = [each async for each in stub.PlanPlacement(requests(), metadata=metadata(planner))]
        assert [each.plan for each in again] == [plan]
        request = placement_pb2.CertifyPlacementRequest(plan=plan)
        assert list((await stub.CertifyPlacement(request, metadata=metadata(planner))).violations) == []
        request.plan.problem.cluster.num_devices = 1
        assert (await stub.CertifyPlacement(request, metadata=metadata(planner))).violations


async def test_a_model_without_profiles_is_captured_and_estimated(planner: PlannerLink, tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "models.yaml").write_text(f"models:\n- {{name: own, capture: {tmp_path}, seq: 64, dtype: float16}}\n")
    (tmp_path / "cluster.yaml").write_text("device: V100-16\nnum_devices: 2\n")
    options = ProblemOptions(
        models=tmp_path / "models.yaml", cluster=tmp_path / "cluster.yaml", workload="poisson:rate=1"
    )
    problem = await make_problem(await read_inputs(options), planner, lambda _: None)
    assert {(profile.pp, profile.op) for profile in problem.profiles} == {(1, 1), (2, 1), (1, 2)}
    for profile in problem.profiles:
        assert profile.provenance is Provenance.ESTIMATED
        assert profile.model == f"{tmp_path}, 64 tokens, float16"
        assert profile.latency_s > 0


async def test_faults_come_back_as_errors(planner: PlannerLink, problem: PlacementProblem) -> None:
    async def nothing() -> AsyncIterator[placement_pb2.PlanPlacementRequest]:
        yield placement_pb2.PlanPlacementRequest(stop=True)

    async with streaming(planner) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stub.PlanPlacement(nothing(), metadata=metadata(planner))))
        assert isinstance(error_from_rpc(caught.value), InvalidArgumentError)

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CertifyPlacement(placement_pb2.CertifyPlacementRequest())
    assert isinstance(error_from_rpc(caught.value), UnauthenticatedError)

    unknown = placement_pb2.EstimateStagesRequest(model="m", device="Z80", max_devices=1)
    unknown.graph.operators.add(name="x", kind="matmul", target="x")
    unknown.graph.name = "g"
    with pytest.raises(NotFoundError):
        async with planner.stub() as calls:
            await calls.EstimateStages(unknown)
