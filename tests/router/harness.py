"""A plan, and a router over a real socket in this process."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import grpc

from headway.core.latency import LatencyModel
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, ServingPlan
from headway.core.slo import Slo
from headway.core.step_work import StepWork
from headway.router.maintenance import Maintenance
from headway.router.service import RouterService
from headway.rpc.status import error_from_pb
from headway.v1 import common_pb2, router_pb2, router_pb2_grpc
from tests.specs import llama_spec

LATENCY = LatencyModel(
    base_s=0.01, per_prefill_token_s=0.001, per_prefill_pair_s=0.0, per_decode_s=0.002, per_context_token_s=1e-6
)
ESTIMATED = replace(LATENCY, relative_error=0.5, origin="estimated")
"""The same speed, of which the catalogue alone tells."""
PREFILLED = StepWork(
    num_steps=1,
    num_prefill_tokens=400,
    num_prefill_pairs=80_000,
    duration_s=LATENCY.step_s(prefill_tokens=400, num_decodes=0, context_tokens=0),
)
"""What a worker reports after the first prompt."""
SPEC = llama_spec(vocab_size=256, max_position=4096)


def make_plan(
    *worker_ids: str, plan_id: str = "plan-1", slo: Slo | None = None, latency: LatencyModel = LATENCY
) -> ServingPlan:
    """Every worker serves `llama` at a speed."""
    prediction = Prediction(
        ttft_s=0.5, tpot_s=0.01, tpot_loaded_s=0.1, output_tokens_per_s=100.0, latency=latency, profile_id="p"
    )
    return ServingPlan(
        plan_id=plan_id,
        created_at_s=0.0,
        models=(ModelDeployment(name="llama", directory="/models/llama", spec=SPEC, slo=slo or Slo()),),
        workers=(),
        assignments=tuple(
            Assignment(
                group_id=f"group-of-{worker_id}",
                worker_id=worker_id,
                model="llama",
                weight_bytes=1,
                kv_cache_bytes=1,
                reserved_bytes=1,
                num_blocks=1024,
                block_size=16,
                max_num_seqs=64,
                max_num_batched_tokens=512,
                max_model_len=4096,
                enable_prefix_cache=True,
                prediction=prediction,
            )
            for worker_id in worker_ids
        ),
    )


async def route_once(
    stub: "router_pb2_grpc.RouterServiceAsyncStub", message: router_pb2.Route, *, timeout_s: float | None
) -> router_pb2.Lease:
    """Over a stream of its own; raises what the router refuses it with."""
    call = stub.Dispatch(timeout=timeout_s)
    await call.write(router_pb2.DispatchRequest(route=message))
    answer = await call.read()
    assert isinstance(answer, router_pb2.DispatchResponse), await call.details()
    assert (answer.request_id, answer.attempt) == (message.request_id, message.attempt)
    await call.done_writing()
    if answer.HasField("error"):
        raise error_from_pb(answer.error)
    return answer.lease


async def release_once(
    stub: "router_pb2_grpc.RouterServiceAsyncStub", message: router_pb2.Release, *, timeout_s: float = 5.0
) -> None:
    """Over a stream of its own, which ends when the router has heard it; raises what is wrong with it."""
    call = stub.Dispatch(timeout=timeout_s)
    await call.write(router_pb2.DispatchRequest(release=message))
    await call.done_writing()
    async for answer in call:
        raise error_from_pb(answer.error)


async def note_first_token_once(
    stub: "router_pb2_grpc.RouterServiceAsyncStub", message: router_pb2.FirstToken, *, timeout_s: float = 5.0
) -> None:
    """Over a stream of its own, which ends when the router has heard it."""
    call = stub.Dispatch(timeout=timeout_s)
    await call.write(router_pb2.DispatchRequest(first_token=message))
    await call.done_writing()
    assert [answer async for answer in call] == []


@dataclass(frozen=True, slots=True)
class RunningRouter:
    """A router that serves, a channel to it, and a stub on that."""

    service: RouterService
    maintenance: Maintenance
    channel: grpc.aio.Channel
    stub: "router_pb2_grpc.RouterServiceAsyncStub"

    async def route(
        self, request_id: str, *, timeout_s: float | None = 10.0, slo: dict[str, float] | None = None, **fields: Any
    ) -> router_pb2.Lease:
        request: dict[str, Any] = {
            "model": "llama",
            "gateway_id": "gateway-0",
            "num_prompt_tokens": 100,
            "max_output_tokens": 32,
        }
        objective = common_pb2.Slo(**slo) if slo else None
        message = router_pb2.Route(request_id=request_id, slo=objective, **(request | fields))
        return await route_once(self.stub, message, timeout_s=timeout_s)

    async def release(self, lease_id: str, *, outcome: str = "complete", **fields: Any) -> None:
        await release_once(self.stub, router_pb2.Release(lease_id=lease_id, outcome=outcome, **fields))

    async def note_first_token(self, lease_id: str, *, ttft_s: float) -> None:
        await note_first_token_once(self.stub, router_pb2.FirstToken(lease_id=lease_id, ttft_s=ttft_s))

    async def fleet(self) -> router_pb2.GetFleetResponse:
        return await self.stub.GetFleet(router_pb2.GetFleetRequest())


async def eventually(condition: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    """Returns once the condition holds; fails the test if it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true in time"
        await asyncio.sleep(0.005)
