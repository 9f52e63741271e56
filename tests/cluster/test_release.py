"""An emulated release: what the chart starts answers requests, and goes on where something dies or is replaced."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.v1 import planner_pb2
from tests.cluster.chart import VALUES, objects, render
from tests.cluster.controller import Controller
from tests.cluster.pod import Pod
from tests.cluster.release import Release
from tests.cluster.stream import Stream, answers, ask
from tests.rpc.authority import Authority

_FIRST_WORKER_PORT = 9100
_STANDS_STILL_S = 60.0


@pytest.fixture(scope="module")
def release(timed_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with Release(tmp_path_factory.mktemp("release")) as running:
        running.apply(_rendered(timed_models))
        running.wait_until_ready()
        yield running


def _rendered(directory: Path, **changes: Any) -> list[dict[str, Any]]:
    storage = {"modelStorage": {"hostPath": str(directory)}, "controller": {"replicas": 2}}
    return objects(render(VALUES["emulated"], changes=storage | changes))


@pytest.fixture(scope="module")
def undisturbed(release: Release) -> str:
    """The text of the stream where nothing happens meanwhile."""
    return Stream(release.endpoints()[0]).text()


def _streams(release: Release) -> list[Stream]:
    """Four, on two gateways."""
    return [Stream(release.endpoints()[index % 2]) for index in range(4)]


def test_every_pod_is_ready_and_both_gateways_answer(release: Release) -> None:
    assert len(release.endpoints()) == 2
    texts = {ask(url).json()["choices"][0]["text"] for url in release.endpoints()}
    assert len(texts) == 1


def test_a_gateway_that_is_deleted_ends_its_streams_first(release: Release, undisturbed: str) -> None:
    [first, _] = release.of("gateway")
    stream = Stream(f"http://{first.address}:8000")
    release.delete(first)
    assert stream.text() == undisturbed
    release.wait_until_ready()
    assert len(release.endpoints()) == 2


def test_a_cell_that_is_deleted_hands_its_streams_over(release: Release, undisturbed: str) -> None:
    streams = _streams(release)
    release.delete(release.busiest_cell())
    assert {stream.text() for stream in streams} == {undisturbed}
    release.wait_until_ready()


@pytest.mark.parametrize("component", ["worker", "router", "kvcache", "planner", "profiler", "controller", "redis"])
def test_streams_go_on_where_a_container_is_killed(release: Release, undisturbed: str, component: str) -> None:
    streams = _streams(release)
    killed = release.busiest_cell() if component == "worker" else release.of(component)[0]
    killed.kill()
    assert {stream.text() for stream in streams} == {undisturbed}
    release.wait_until_ready()
    release.wait(lambda: answers(release.endpoints()), f"requests are answered without the first {component}")


def test_a_controller_stands_by_ready_and_takes_over(release: Release, undisturbed: str) -> None:
    release.wait_until_ready()
    standby, active = sorted(release.of("controller"), key=_epoch)
    stream = Stream(release.endpoints()[0])
    active.kill()
    release.wait(lambda: _epoch(standby) > _epoch(active), "the other one takes over")
    release.wait_until_ready()
    assert stream.text() == undisturbed


def test_orders_of_a_controller_that_stood_still_are_refused(release: Release, undisturbed: str) -> None:
    """It stands still amid a change, until another one has had the worker take its model up again. When it goes on,
    Redis cannot tell it that it was succeeded; only workers know."""
    release.wait_until_ready()
    standby, active = sorted(release.of("controller"), key=_epoch)
    plan = Controller(release, active).plan()
    fewer = planner_pb2.ServingPlan()
    fewer.CopyFrom(plan)
    left_out = fewer.assignments.pop()
    streams = _streams(release)
    with _worker(release, left_out.worker_id) as worker, ExitStack() as still:
        worker.suspend()  # so that it cannot have done what it is told
        Controller(release, active).apply(fewer)
        release.wait(lambda: f"{left_out.worker_id}: drain tiny" in active.logs(), "the first one is at it")
        still.enter_context(active.standing_still())
        stopped_at_s = time.monotonic()
        worker.resume()
        release.wait(lambda: _epoch(standby) > _epoch(active), "the other one takes over")
        release.wait(Controller(release, standby).is_ready, "the other one has done it")
        release.wait(lambda: left_out.worker_id in Controller(release, standby).members(), "the worker is there again")
        Controller(release, standby).apply(plan)
        release.wait(Controller(release, standby).is_ready, "the other one has undone it")
        assert {stream.text() for stream in streams} == {undisturbed}
        time.sleep(max(0.0, _STANDS_STILL_S - (time.monotonic() - stopped_at_s)))
        streams = _streams(release)
        with release.of("redis")[0].standing_still():
            still.close()
            release.wait(lambda: "the caller has epoch" in active.logs(), "a worker refuses what it orders")
        assert {stream.text() for stream in streams} == {undisturbed}
        release.wait(lambda: "another controller has taken over" in active.logs(), "it finds out")
        release.wait_until_ready()
        assert worker.is_running()
    assert _epoch(standby) > _epoch(active)
    assert _homes(Controller(release, standby).plan()) == _homes(plan)
    assert Controller(release, standby).is_ready()


def test_an_upgrade_brings_another_model_without_a_dropped_stream(
    release: Release, timed_models: Path, undisturbed: str
) -> None:
    stream = Stream(release.endpoints()[0])
    both = [{"name": name, "path": f"/models/{name}"} for name in ("tiny", "second")]
    release.apply(_rendered(timed_models, models=both, logLevel="warning"))
    assert stream.text() == undisturbed
    release.wait_until_ready()
    for model in ("tiny", "second"):
        release.wait(partial(_serves, release, model), f"{model} is served")


@contextmanager
def _worker(release: Release, worker_id: str) -> Iterator[psutil.Process]:
    """The process of a worker, which goes on at the end."""
    cell, _, index = worker_id.rpartition("-")
    [process] = release.pods[cell].listeners(_FIRST_WORKER_PORT + int(index))
    try:
        yield process
    finally:
        process.resume()


def _homes(plan: planner_pb2.ServingPlan) -> list[tuple[str, str]]:
    """Which worker leads a group of which model."""
    return sorted((each.worker_id, each.model) for each in plan.assignments)


def _epoch(controller: Pod) -> int:
    """Of the last time that it was at work; 0 for never."""
    return max(map(int, re.findall(r"this controller has epoch (\d+)", controller.logs())), default=0)


def _serves(release: Release, model: str) -> bool:
    return answers(release.endpoints(), model)


def test_a_release_with_tls_answers_and_takes_no_call_without_a_certificate(timed_models: Path, tmp_path: Path) -> None:
    files = Authority(tmp_path / "authority").issue()
    paths = {"ca.crt": files.ca, "tls.crt": files.cert, "tls.key": files.key}
    secret = {
        "kind": "Secret",
        "metadata": {"name": "own"},
        "stringData": {key: Path(path).read_text() for key, path in paths.items()},
    }
    changes = {"tls": {"enabled": True, "existingSecret": "own"}, "router": {"replicas": 1}, "gateway": {"replicas": 1}}
    with Release(tmp_path / "release") as running:
        running.apply([secret, *_rendered(timed_models, **changes)])
        running.wait_until_ready()
        running.wait(lambda: answers(running.endpoints()), "requests are answered")
        services = [pod for pod in running.of("") if pod.component not in ("redis", "gateway")]
        assert len(services) == 8
        for pod in services:
            with grpc.insecure_channel(f"{pod.address}:9000") as channel, pytest.raises(grpc.RpcError) as refusal:
                health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE, pod.name
