"""Services over real sockets, as the tests of their rooms start them, on the event loop that they run on."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop

from tests.controller.conftest import controlling, deployment, make_model, planner, serve, spawned
from tests.kvcache.conftest import caching
from tests.profiler.conftest import endpoint, profiles, service, spec, worker
from tests.router.conftest import routing
from tests.worker.conftest import tiny

__all__ = [
    "caching",
    "controlling",
    "deployment",
    "endpoint",
    "make_model",
    "planner",
    "profiles",
    "routing",
    "serve",
    "service",
    "spawned",
    "spec",
    "tiny",
    "worker",
]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}
