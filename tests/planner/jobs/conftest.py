"""A planner process of the test's own, and problems that are searched for long or not at all."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from headway.cli.ports import take_port
from headway.core.placement_problem import PlacementProblem, WorkloadSource
from headway.v1 import planner_pb2_grpc
from tests.forked import ForkedProcess
from tests.planner.placement_plan.conftest import make_problem, make_profile

__all__ = ["make_problem", "make_profile"]

START_TIMEOUT_S = 60.0


class PlannerProcess:
    """A planner that may be killed and started again. It keeps its port."""

    def __init__(self, redis_url: str, namespace: str, log: Path) -> None:
        self._port = take_port("127.0.0.1", 0, option="--port")
        self._options = ("--redis-url", redis_url, "--namespace", namespace, "--port", str(self._port))
        self._log = log
        self._process: ForkedProcess | None = None

    def start(self) -> None:
        self._process = ForkedProcess(
            "headway.planner", self._options, imports="headway.planner.__main__", log=self._log
        )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_TIMEOUT_S)

    def children(self) -> list[psutil.Process]:
        """The processes that search, and those that they have started."""
        assert self._process is not None
        return psutil.Process(self._process.pid).children(recursive=True)

    @asynccontextmanager
    async def stub(self) -> AsyncIterator["planner_pb2_grpc.PlannerServiceAsyncStub"]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            await channel.channel_ready()
            yield planner_pb2_grpc.PlannerServiceStub(channel)


@pytest.fixture
def planner(redis_url: str, namespace: str, tmp_path: Path) -> Iterator[PlannerProcess]:
    planner = PlannerProcess(redis_url, namespace, tmp_path / "planner.log")
    planner.start()
    yield planner
    planner.stop()


@pytest.fixture
def short_problem(make_problem: Callable[..., PlacementProblem]) -> PlacementProblem:
    return make_problem(WorkloadSource(spec="poisson:rate=5", duration_s=10.0))


@pytest.fixture
def long_problem(make_problem: Callable[..., PlacementProblem], make_profile: Any) -> PlacementProblem:
    """Searched for a minute, with a placement after the first seconds."""
    profiles = tuple(make_profile("small", *([0.11 / pp] * pp)) for pp in (1, 2, 4))
    names = [f"model-{number}" for number in range(24)]
    source = WorkloadSource(spec="gamma:rate=150,cv=4", duration_s=60.0)
    return make_problem(source, profiles=profiles, names=names, num_devices=32, memory_gib=8.0)


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=START_TIMEOUT_S)
    assert alive == []
