"""One world, and one gateway in it, for the whole room."""

import uuid
from collections.abc import Iterator

import openai
import pytest
from tokenizers import Tokenizer

from tests.gateway.vocabularies import byte_level
from tests.gateway.world import Gateway, World, is_ready, wait_for

MAX_BODY_BYTES = 64 * 1024
RESUME_TIMEOUT_S = 2.0


@pytest.fixture(scope="session")
def shared_world(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(redis_url, namespace=f"gateway-{uuid.uuid4().hex[:8]}", directory=tmp_path_factory.mktemp("world"))
    world.start()
    yield world
    world.stop()


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """After each test the router's lease table must balance."""
    shared_world.reset()
    yield shared_world
    router = shared_world.router
    wait_for(lambda: router.num_open == 0)
    assert sorted(release.lease_id for release in router.released) == sorted(router.leased)


@pytest.fixture(scope="session")
def running_gateway(shared_world: World) -> Iterator[Gateway]:
    limits = ("--max-body-bytes", str(MAX_BODY_BYTES), "--max-request-sequences", "8")
    with shared_world.gateway(*limits, "--resume-timeout-s", str(RESUME_TIMEOUT_S)) as gateway:
        yield gateway


@pytest.fixture
def gateway(running_gateway: Gateway, world: World) -> Gateway:
    """Ready again, where a long test of another room has kept the world from renewing its leases."""
    wait_for(lambda: is_ready(running_gateway))
    return running_gateway


@pytest.fixture(scope="session")
def running_guarded_gateway(shared_world: World) -> Iterator[Gateway]:
    keys = ("--api-keys", "first", "--api-keys", "second")
    with shared_world.gateway(
        *keys, "--max-concurrency", "2", "--otlp-endpoint", shared_world.collector_url
    ) as gateway:
        yield gateway


@pytest.fixture
def guarded(running_guarded_gateway: Gateway, world: World) -> Gateway:
    """Asks for a key, answers two requests at once, and tells a collector of its spans."""
    wait_for(lambda: is_ready(running_guarded_gateway))
    return running_guarded_gateway


@pytest.fixture
def client(gateway: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """That of MODEL."""
    return byte_level()
