"""Keys that are made and revoked while the gateway runs, out of a real Redis."""

import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest

from headway.client import Client
from headway.controller.api_keys import ApiKeys as KeyMaker
from headway.core.api_key import ApiKeyRecord, hash_of
from headway.core.errors import NotFoundError, ResourceExhaustedError, UnauthenticatedError, UnavailableError
from headway.gateway.key_ring import KeyRing
from headway.gateway.request_rate import RequestRate
from headway.store.api_keys import ApiKeyStore
from headway.store.redis import Database
from headway.v1 import inference_pb2, inference_pb2_grpc
from tests.gateway.world import MODEL, PLAIN_MODEL, Gateway, World, wait_for

NOW_S = 1_700_000_000.0


class Office:
    """A gateway in a world of its own, and the keys that are made for it."""

    def __init__(self, world: World, gateway: Gateway) -> None:
        self.world = world
        self.gateway = gateway
        self._maker = KeyMaker(ApiKeyStore(world._database), clock=lambda: NOW_S)  # as the controller has it

    def make(self, **options: Any) -> tuple[str, str]:
        """A key that the gateway knows, and its id."""
        key, record = self.world.run(self._maker.create(**options))
        wait_for(lambda: self.get("/v1/models", key).status_code != 401)
        return key, record.key_id

    def revoke(self, key_id: str) -> None:
        self.world.run(self._maker.revoke(key_id))

    def get(self, path: str, key: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.get(self.gateway.url + path, headers=headers)

    def complete(self, key: str, *, model: str = MODEL, **headers: str) -> httpx.Response:
        body = {"model": model, "prompt": "ab", "max_tokens": 1}
        return httpx.post(
            f"{self.gateway.url}/v1/completions", json=body, headers={"authorization": f"Bearer {key}", **headers}
        )


@pytest.fixture(scope="module")
def office(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    world = World(redis_url, namespace=f"keys-{uuid.uuid4().hex[:8]}", directory=tmp_path_factory.mktemp("keys"))
    world.start()
    world.reset()
    with world.gateway("--api-keys", "static") as gateway:
        yield Office(world, gateway)
    world.stop()


def test_a_key_opens_until_it_is_revoked(office: Office) -> None:
    key, key_id = office.make()
    assert office.complete(key).status_code == 200
    assert office.complete(hash_of(key)).status_code == 401
    assert office.complete("static").status_code == 200
    office.revoke(key_id)
    wait_for(lambda: office.complete(key).status_code == 401)
    assert "revoked" in office.complete(key).json()["error"]["message"]
    assert office.complete("static").status_code == 200


def test_a_key_opens_its_models_only(office: Office) -> None:
    key, _ = office.make(models=[PLAIN_MODEL])
    refused = office.complete(key)
    assert refused.status_code == 404
    assert PLAIN_MODEL in refused.json()["error"]["message"]
    assert [model["id"] for model in office.get("/v1/models", key).json()["data"]] == [PLAIN_MODEL]
    assert office.get(f"/v1/models/{MODEL}", key).status_code == 404
    assert office.get(f"/v1/models/{PLAIN_MODEL}", key).status_code == 200
    with Client(office.gateway.grpc_endpoint, api_key=key) as client:
        assert [model.name for model in client.models()] == [PLAIN_MODEL]
        with pytest.raises(NotFoundError, match="API key opens"):
            list(client.generate("ab", model=MODEL))
        with pytest.raises(NotFoundError, match="API key opens"):
            client.tokenize("ab", model=MODEL)


def test_a_key_is_its_tenants(office: Office) -> None:
    key, _ = office.make(tenant="gold")
    office.world.reset()
    assert office.complete(key).status_code == 200
    assert office.complete(key, **{"x-headway-tenant": "gold"}).status_code == 200
    assert office.complete(key, **{"x-headway-tenant": "iron"}).status_code == 400
    assert {route.tenant for route in office.world.router.routed} == {"gold"}
    assert {submit.cache_salt for submit in office.world.worker.submitted} == {"gold\0"}
    assert {submit.tenant for submit in office.world.worker.submitted} == {"gold"}


def test_a_key_is_used_as_often_as_it_may(office: Office) -> None:
    key, _ = office.make(requests_per_minute=4)
    answers = [office.complete(key) for _ in range(6)]
    assert [answer.status_code for answer in answers][-2:] == [429, 429]
    assert answers[0].status_code == 200
    assert "4 requests a minute" in answers[-1].json()["error"]["message"]
    assert 0 < float(answers[-1].headers["retry-after"]) <= 15


def test_an_operators_key_opens_the_clusters_state_and_a_clients_does_not(office: Office) -> None:
    for is_admin in (False, True):
        key, _ = office.make(is_admin=is_admin)
        with grpc.insecure_channel(office.gateway.grpc_endpoint) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            call = stub.GetClusterStatus.with_call
            metadata = (("authorization", f"Bearer {key}"),)
            if is_admin:
                assert call(inference_pb2.GetClusterStatusRequest(), metadata=metadata)
                continue
            with pytest.raises(grpc.RpcError) as caught:
                call(inference_pb2.GetClusterStatusRequest(), metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


class Book:
    """Keys that a test writes itself; None while it cannot be read."""

    def __init__(self, *records: ApiKeyRecord) -> None:
        self.records: list[ApiKeyRecord] | None = list(records)

    async def all(self) -> list[ApiKeyRecord]:
        if self.records is None:
            raise UnavailableError("Redis is away.")
        return self.records


def record(key: str, **fields: Any) -> ApiKeyRecord:
    return ApiKeyRecord(key_id=f"key-{key}", hashed=hash_of(key), created_at_s=NOW_S, **fields)


async def test_a_key_expires_and_one_that_was_ever_made_keeps_the_door_shut() -> None:
    now_s = NOW_S
    book = Book(record("a", expires_at_s=NOW_S + 60))
    ring = KeyRing(book, wall_clock=lambda: now_s, clock=lambda: 0.0)
    assert ring.asks
    with pytest.raises(UnavailableError, match="not read"):
        ring.admit(hash_of("a"))
    await ring.catch_up()
    ring.admit(hash_of("a"))
    now_s += 60
    with pytest.raises(UnauthenticatedError, match="expired"):
        ring.admit(hash_of("a"))
    assert ring.find(hash_of("a")) is None
    assert ring.asks
    book.records = None
    await ring.catch_up()
    assert ring.asks
    book.records = []  # none is ever deleted: the book was lost
    await ring.catch_up()
    assert ring.asks


async def test_a_changed_bound_holds_at_once_and_others_are_kept() -> None:
    book = Book(record("a", requests_per_minute=1), record("b", requests_per_minute=2))
    ring = KeyRing(book, wall_clock=lambda: NOW_S, clock=lambda: 0.0)
    await ring.catch_up()
    ring.admit(hash_of("a"))
    ring.admit(hash_of("b"))
    await ring.catch_up()
    with pytest.raises(ResourceExhaustedError, match="1 requests a minute"):
        ring.admit(hash_of("a"))
    ring.admit(hash_of("b"))
    book.records = [record("a", requests_per_minute=3)]
    await ring.catch_up()
    for _ in range(3):
        ring.admit(hash_of("a"))
    with pytest.raises(UnauthenticatedError, match="not valid"):
        ring.admit(hash_of("b"))


def test_a_rate_fills_evenly_up_to_a_minutes_worth() -> None:
    now_s = 0.0
    rate = RequestRate(6, clock=lambda: now_s)
    assert [rate.take() for _ in range(7)] == [0.0] * 6 + [pytest.approx(10.0)]
    now_s = 4.0
    assert rate.take() == pytest.approx(6.0)
    now_s = 10.0
    assert rate.take() == 0.0
    assert rate.take() > 0
    now_s = 1000.0
    assert [rate.take() > 0 for _ in range(7)] == [False] * 6 + [True]


async def test_what_is_kept_of_a_key_does_not_hold_it(redis_url: str) -> None:
    database = Database.connect(redis_url, namespace=f"keys-{uuid.uuid4().hex[:8]}")
    try:
        store = ApiKeyStore(database)
        maker = KeyMaker(store, clock=lambda: NOW_S)
        key, made = await maker.create(tenant="gold", models=["a", "a"], lifetime_s=60)
        assert await store.all() == [made] == [await store.get(made.key_id)]
        kept = await database.redis.hgetall(f"{database.namespace}:api-keys")
        assert key not in str(kept)
        assert key[3:] not in str(kept)
        assert (made.models, made.expires_at_s) == (("a",), NOW_S + 60)
        again = await maker.revoke(made.key_id)
        assert again.revoked_at_s == NOW_S
        with pytest.raises(NotFoundError, match="headway key list"):
            await maker.revoke("key-none")
    finally:
        await database.redis.delete(f"{database.namespace}:api-keys")
        await database.close()
