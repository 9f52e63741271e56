"""The API as it documents itself, at a gateway process: whatever a client sends to an operation is answered in time, as
the document says, and never by a fault of ours.
"""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.schemas import APIOperation

from headway.v1 import inference_pb2
from tests.documented import answer_of, document_of, post
from tests.fuzz.amount import NUM_CALLS
from tests.fuzz.calls import Plain, call_all
from tests.gateway.world import MODEL, Gateway, World

GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/responses")
OPERATIONS = [
    *(("POST", path) for path in (*GENERATING, "/v1/embeddings", "/v1/classify", "/v1/rerank", "/v1/score")),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    *(("GET", path) for path in ("/live", "/health", "/ready", "/metrics", "/metrics/targets", "/version")),
]
WEATHER = {
    "name": "weather",
    "description": "of a place",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
SAYS = [{"role": "user", "content": "Weather?"}]
PLAIN: dict[str, list[dict[str, Any]]] = {
    "/v1/completions": [
        {"prompt": "one"},
        {"prompt": [[20, 21], [22]], "n": 2, "best_of": 3, "logprobs": 2, "temperature": 1.0},
        {"prompt": "one", "echo": True, "logprobs": 1, "prompt_logprobs": 2, "return_token_ids": True},
        {"prompt": ["one", "two"], "beam_width": 2, "n": 2},
        {"prompt": "one", "stream": True, "stream_options": {"include_usage": True}},
    ],
    "/v1/chat/completions": [
        {"messages": SAYS},
        {"messages": SAYS, "n": 2, "logprobs": True, "top_logprobs": 2, "return_token_ids": True, "temperature": 1.0},
        {"messages": SAYS, "prompt_logprobs": 1, "tools": [{"type": "function", "function": WEATHER}]},
        {"messages": [*SAYS, {"role": "assistant", "content": None}], "stream": True},
    ],
    "/v1/responses": [
        {"input": "Weather?"},
        {"input": [{"role": "user", "content": "?"}], "top_logprobs": 2, "metadata": {"a": "b"}},
        {"input": "Weather?", "tools": [{"type": "function", **WEATHER}], "reasoning": {"effort": "low"}},
        {"input": "Weather?", "stream": True, "instructions": "Be short."},
    ],
}


@pytest.fixture(scope="module")
def world(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(redis_url, namespace=f"fuzz-{uuid.uuid4().hex[:8]}", directory=tmp_path_factory.mktemp("world"))
    world.start()
    world.reset()
    world.worker.step_s = 0.0
    yield world
    world.stop()


@pytest.fixture(scope="module")
def gateway(world: World) -> Iterator[Gateway]:
    """At its end it must be well: a bug is one even where its answer was no 5xx."""
    with world.gateway("--max-request-sequences", "8") as gateway:
        yield gateway
        assert httpx.get(f"{gateway.url}/ready").json() == {"ready": True, "waiting_for": []}
    assert [line for line in gateway.log.read_text().splitlines() if '"level":"error"' in line.replace(" ", "")] == []


async def test_anything_over_grpc_is_answered(gateway: Gateway) -> None:
    plain: Plain = {
        "Generate": [inference_pb2.GenerateRequest(model=MODEL, text="one")],
        "Infer": [inference_pb2.InferRequest(model=MODEL, inputs=[inference_pb2.InferInput(text="one")])],
        "Tokenize": [inference_pb2.TokenizeRequest(model=MODEL, text="one")],
    }
    service = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]
    async with grpc.aio.insecure_channel(gateway.grpc_endpoint) as channel:
        await call_all(channel, service.methods, plain=plain)


@pytest.fixture(scope="module")
def api(gateway: Gateway) -> Any:
    return document_of(gateway.url)


def test_every_operation_is_known_here(api: Any) -> None:
    found = {(each.ok().method.upper(), each.ok().path) for each in api.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize("path", GENERATING)
def test_plain_requests_are_answered_as_documented(api: Any, path: str) -> None:
    for body in PLAIN[path]:
        assert post(api, path, {"model": MODEL, **body}).status_code == 200


@st.composite
def requests(draw: Callable[..., Any], operation: APIOperation) -> Any:
    """Requests of which some keep to the document. Most name a model that is there and set few fields: what sets them
    all is refused for the first."""
    case = draw(operation.as_strategy(draw(st.sampled_from(GenerationMode))))
    if isinstance(case.body, dict) and draw(st.integers(0, 7)):
        needed = operation.body[0].optimized_schema["required"]
        kept = {*needed, *draw(st.lists(st.sampled_from(sorted(case.body) or [""]), max_size=3))}
        case.body = {name: value for name, value in case.body.items() if name in kept} | {"model": MODEL}
        case.headers = {}
    return case


@pytest.mark.timeout(0)
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda part: part)
@settings(
    derandomize=NUM_CALLS <= 1000,
    deadline=None,
    max_examples=NUM_CALLS,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_anything_is_answered_as_documented(api: Any, method: str, path: str, data: st.DataObject) -> None:
    answer_of(data.draw(requests(api[path][method])))
