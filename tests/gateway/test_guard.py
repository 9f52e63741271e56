"""A gateway with keys and little room."""

from collections.abc import Iterator

import grpc
import httpx
import pytest

from headway.client import Client
from headway.core.errors import UnauthenticatedError
from headway.gateway.keys import is_loopback
from headway.v1 import inference_pb2, inference_pb2_grpc
from tests.gateway.world import MODEL, Gateway, World, wait_for

KEY = {"authorization": "Bearer second"}
BODY = {"model": MODEL, "prompt": "ab", "max_tokens": 400, "stream": True}


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic second"}])
def test_without_a_key_nothing_is_answered(guarded: Gateway, headers: dict[str, str]) -> None:
    for path in (
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/models",
        "/v1/nothing",
        "/v2/rerank",
        "/score",
        "/tokenize",
    ):
        response = httpx.post(guarded.url + path, json=BODY, headers=headers)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"
        assert response.headers["x-request-id"]


@pytest.mark.parametrize("key", ["first", "second"])
def test_each_key_opens(guarded: Gateway, key: str) -> None:
    response = httpx.get(f"{guarded.url}/v1/models", headers={"authorization": f"Bearer {key}"})
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/version"])
def test_operators_need_no_key(guarded: Gateway, path: str) -> None:
    assert httpx.get(guarded.url + path).status_code == 200


@pytest.fixture(scope="module")
def exposed(shared_world: World) -> Iterator[Gateway]:
    """It listens on every address, and an operator has a key."""
    with shared_world.gateway("--http-host", "0.0.0.0", "--api-keys", "first", "--admin-keys", "operator") as gateway:
        yield gateway


@pytest.mark.parametrize("path", ["/metrics", "/metrics/targets", "/docs", "/redoc", "/openapi.json"])
def test_what_is_exposed_tells_operators_only_of_its_inside(exposed: Gateway, path: str) -> None:
    for key in (None, "first", "other"):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        assert httpx.get(exposed.url + path, headers=headers).status_code == 401
    assert httpx.get(exposed.url + path, headers={"authorization": "Bearer operator"}).status_code == 200
    assert httpx.get(exposed.url + "/ready").status_code == 200


def test_a_clients_key_opens_models_and_not_the_clusters_state(exposed: Gateway) -> None:
    for key, opens in (("first", False), ("operator", True)):
        with Client(exposed.grpc_endpoint, api_key=key) as client:
            if opens:
                assert client.status().plan is not None
                continue
            assert client.models()
            with pytest.raises(UnauthenticatedError, match="operators"):
                client.status()


@pytest.mark.parametrize(
    ("host", "is_ours"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("h", False)]
)
def test_loopback_is_for_this_machine_only(host: str, is_ours: bool) -> None:
    assert is_loopback(host) == is_ours


def test_grpc_asks_for_the_same_keys(guarded: Gateway) -> None:
    with grpc.insecure_channel(guarded.grpc_endpoint) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        request = inference_pb2.GenerateRequest(model=MODEL, text="ab")
        for call in (
            lambda: list(stub.Generate(request)),
            lambda: stub.ListModels(inference_pb2.ListModelsRequest()),
            lambda: stub.GetClusterStatus(inference_pb2.GetClusterStatusRequest()),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert list(stub.Generate(request, metadata=tuple(KEY.items())))


def test_more_than_fits_is_refused_with_a_hint(guarded: Gateway, world: World) -> None:
    world.worker.step_s = 0.02
    url = f"{guarded.url}/v1/completions"
    with (
        httpx.stream("POST", url, json=BODY, headers=KEY) as first,
        httpx.stream("POST", url, json=BODY, headers=KEY) as second,
    ):
        streams = [first.iter_lines(), second.iter_lines()]
        assert all(next(lines) for lines in streams)
        refused = httpx.post(url, json=BODY, headers=KEY)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert "--max-concurrency" in refused.json()["error"]["message"]
    wait_for(lambda: httpx.post(url, json=BODY | {"max_tokens": 1}, headers=KEY).status_code == 200)


def test_a_stopping_gateway_ends_its_streams_and_its_leases(shared_world: World, world: World) -> None:
    world.worker.step_s = 0.02
    with shared_world.gateway() as gateway:
        with httpx.stream("POST", f"{gateway.url}/v1/completions", json=BODY) as response:
            lines = response.iter_lines()
            next(lines)
            gateway.process.terminate()
            assert "The gateway is stopping" in [line for line in lines if line][-1]
        assert gateway.process.wait(10) == 0
    wait_for(lambda: len(world.worker.cancelled) == 1)


def test_one_that_leaves_answers_on_and_has_its_clients_connect_anew(shared_world: World, world: World) -> None:
    """A connection that a client keeps is not closed while its next request may be on the way."""
    with shared_world.gateway("--leave-s", "2") as gateway, httpx.Client() as client:
        url, body = f"{gateway.url}/v1/completions", BODY | {"max_tokens": 1, "stream": False}
        assert "connection" not in client.post(url, json=body).headers
        gateway.process.terminate()
        wait_for(lambda: client.post(url, json=body).headers.get("connection") == "close")
        assert httpx.post(url, json=body).status_code == 200
        assert gateway.process.wait(20) == 0


def test_a_port_in_use_is_said_in_one_line(shared_world: World, guarded: Gateway) -> None:
    port = guarded.url.rsplit(":", 1)[1]
    with pytest.raises(AssertionError) as caught, shared_world.gateway("--http-port", port):
        raise AssertionError("it started")
    assert "Choose another --http-port" in str(caught.value)
