"""Fixtures that every room shares: a real Redis, and a namespace of one's own in it."""

import gc
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.store.embedded import EmbeddedRedis
from headway.store.redis import Database

os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test talks to the internet: no client of HTTP need read 140 certificates, which takes each of them 20 ms.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background jobs ignore it, and so would children
settings.register_profile("suite", derandomize=True, deadline=None)  # every run draws the same examples
settings.load_profile("suite")
gc.disable()  # while ten thousand tests are collected, all of which stay


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real redis-server for the test session."""
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def namespace() -> str:
    """A fresh key prefix: a stack of the test's own."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def database(redis_url: str, namespace: str) -> AsyncIterator[Database]:
    database = Database.connect(redis_url, namespace=namespace)
    yield database
    await database.close()
