"""The gRPC side of a whole stack: the SDK, and health and reflection on every service (reflection with the token)."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from headway.client import AsyncClient, Client
from headway.core.errors import NotFoundError
from tests.integration.stack import RunningStack

SERVICES = {
    "gateway": "headway.v1.InferenceService",
    "router": "headway.v1.RouterService",
    "kvcache": "headway.v1.KvCacheService",
    "planner": "headway.v1.PlannerService",
    "profiler": "headway.v1.ProfilerService",
    "controller": "headway.v1.ControllerService",
    "worker-0": "headway.v1.WorkerService",
}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_answers_health_and_reflection(stack: RunningStack, name: str) -> None:
    with grpc.insecure_channel(stack.endpoint(name)) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=SERVICES[name]), timeout=5
        )
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        answer = next(stub.ServerReflectionInfo(iter([request]), metadata=stack.metadata))
        assert SERVICES[name] in {service.name for service in answer.list_services_response.service}


def test_the_sdk_generates_and_reports(stack: RunningStack) -> None:
    with Client(state_dir=stack.state_dir) as client:
        chunks = list(client.generate("two trains", max_tokens=12, temperature=0, ignore_eos=True))
        assert sum(len(chunk.token_ids) for chunk in chunks) == 12
        usage = next(chunk.usage for chunk in reversed(chunks) if chunk.usage)
        assert usage.completion_tokens == 12
        assert [model.name for model in client.models()] == ["tiny"]
        assert client.status().plan is not None
        with pytest.raises(NotFoundError, match="nope"):
            list(client.generate("x", model="nope"))


async def test_the_async_sdk_runs_requests_side_by_side(stack: RunningStack) -> None:
    async with AsyncClient(state_dir=stack.state_dir) as client:

        async def text(prompt: str) -> str:
            chunks = [chunk async for chunk in client.generate(prompt, max_tokens=8, temperature=0)]
            return "".join(chunk.text for chunk in chunks)

        together = await asyncio.gather(*(text(f"train {i}") for i in range(5)))
        assert together == [await text(f"train {i}") for i in range(5)]
