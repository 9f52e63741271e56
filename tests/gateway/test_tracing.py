"""Spans from the client through the gateway to router and worker."""

import grpc
import httpx

from headway.v1 import inference_pb2, inference_pb2_grpc
from tests.gateway.test_guard import KEY
from tests.gateway.world import MODEL, Gateway, World, wait_for

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


def test_a_trace_goes_from_the_client_to_router_and_worker(guarded: Gateway, world: World) -> None:
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 2, "stream": True}
    headers = {**KEY, "traceparent": TRACEPARENT}
    assert httpx.post(f"{guarded.url}/v1/completions", json=body, headers=headers).status_code == 200
    own = world.worker.last.traceparent
    assert own.split("-")[1] == TRACE_ID
    assert own != TRACEPARENT
    assert world.router.routed[-1].traceparent == own
    wait_for(lambda: any(span.span_id.hex() == own.split("-")[2] for span in world.collector.spans))
    span = next(span for span in world.collector.spans if span.span_id.hex() == own.split("-")[2])
    assert span.name == "gateway CompletionRequest"
    assert span.parent_span_id.hex() == TRACEPARENT.split("-")[2]


def test_grpc_calls_are_traced_too(guarded: Gateway, world: World) -> None:
    with grpc.insecure_channel(guarded.grpc_endpoint) as channel:
        request = inference_pb2.GenerateRequest(model=MODEL, text="ab")
        metadata = (*KEY.items(), ("traceparent", TRACEPARENT))
        list(inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, metadata=metadata))
    assert world.worker.last.traceparent.split("-")[1] == TRACE_ID


def test_nothing_is_traced_unless_asked_for(gateway: Gateway, world: World) -> None:
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 2}
    httpx.post(f"{gateway.url}/v1/completions", json=body, headers={"traceparent": TRACEPARENT})
    assert world.worker.last.traceparent == ""
    assert not world.router.routed[-1].traceparent
