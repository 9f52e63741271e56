"""Tenants at one gateway: none learns what another asks, and gRPC has the budgets of HTTP."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from headway.core.errors import ResourceExhaustedError
from headway.gateway.slots import TenantPlaces
from headway.v1 import inference_pb2, inference_pb2_grpc
from tests.gateway.conftest import MAX_BODY_BYTES
from tests.gateway.world import MODEL, Gateway, World

TENANTS = """
tenants:
  gold: {api_keys: [gold-key], max_sequences: 4}
  iron: {api_keys: [iron-key]}
  open: {api_keys: [open-key], shares_prefixes: true}
"""


@pytest.fixture(scope="module")
def running(shared_world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    path: Path = tmp_path_factory.mktemp("tenants") / "tenants.yaml"
    path.write_text(TENANTS)
    flags = ("--tenants", str(path), "--api-keys", "own-key", "--max-concurrency", "1")
    with shared_world.gateway(*flags, "--max-body-bytes", str(MAX_BODY_BYTES)) as gateway:
        yield gateway


@pytest.fixture
def gateway(running: Gateway, world: World) -> Gateway:
    return running


def ask(gateway: Gateway, key: str, **fields: object) -> None:
    body = {"model": MODEL, "prompt": "one two three " * 8, "max_tokens": 1, **fields}
    headers = {"authorization": f"Bearer {key}", "x-headway-slo-ttft-ms": "60000"}
    assert httpx.post(f"{gateway.url}/v1/completions", json=body, headers=headers).is_success


def test_tenants_share_cached_prefixes_with_nobody_unless_they_say_so(gateway: Gateway, world: World) -> None:
    for key in ("gold-key", "iron-key", "open-key", "own-key"):
        ask(gateway, key)
        ask(gateway, key, cache_salt="mine")
    salts = [submit.cache_salt for submit in world.worker.submitted]
    assert salts == ["gold\0", "gold\0mine", "iron\0", "iron\0mine", "", "mine", "", "mine"]
    chains = [tuple(route.block_hashes) for route in world.router.routed]
    assert all(chains)
    assert len({chain[0] for chain in chains}) == 6, "what the router looks for differs, too"
    assert chains[4] == chains[6]


def test_two_authorization_headers_are_refused(gateway: Gateway) -> None:
    url = f"{gateway.url}/v1/models"
    both = [("authorization", "Bearer gold-key"), ("authorization", "Bearer iron-key")]
    refused = httpx.get(url, headers=both)
    assert refused.status_code == 401
    assert "several Authorization headers" in refused.json()["error"]["message"]
    with grpc.insecure_channel(gateway.grpc_endpoint) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ListModels(inference_pb2.ListModelsRequest(), metadata=tuple(both))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_grpc_calls_are_no_larger_than_http_bodies_and_take_slots(gateway: Gateway, world: World) -> None:
    world.worker.step_s = 0.02
    key = {"authorization": "Bearer own-key"}
    metadata = tuple(key.items())
    running = {"model": MODEL, "prompt": "ab", "max_tokens": 400, "stream": True}
    with grpc.insecure_channel(gateway.grpc_endpoint) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        large = inference_pb2.TokenizeRequest(model=MODEL, text="a" * MAX_BODY_BYTES)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Tokenize(large, metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with httpx.stream("POST", f"{gateway.url}/v1/completions", json=running, headers=key) as stream:
            lines = stream.iter_lines()
            next(lines)
            with pytest.raises(grpc.RpcError, match="--max-concurrency"):
                stub.Tokenize(inference_pb2.TokenizeRequest(model=MODEL, text="a"), metadata=metadata)


def test_a_tenant_has_no_more_sequences_at_once_than_it_may(gateway: Gateway, world: World) -> None:
    world.worker.step_s = 0.02
    url, key = f"{gateway.url}/v1/completions", {"authorization": "Bearer gold-key"}
    refused = httpx.post(url, json={"model": MODEL, "prompt": "ab", "max_tokens": 1, "n": 5}, headers=key)
    assert refused.status_code == 429
    assert "The tenant 'gold' may have 4 sequences at once" in refused.json()["error"]["message"]
    assert world.router.routed == []
    for num_sequences in (4, 3):
        ask(gateway, "gold-key", n=num_sequences)
    ask(gateway, "iron-key", n=5)


def test_places_of_a_tenant_are_free_again_when_its_requests_end() -> None:
    places = TenantPlaces({"gold": 4})
    with places.take("gold", 3), places.take("gold", 1), places.take("", 100), places.take("iron", 100):
        refused = places.take("gold", 1)
        with pytest.raises(ResourceExhaustedError, match="gold"):
            refused.__enter__()
    with places.take("gold", 4):
        pass
