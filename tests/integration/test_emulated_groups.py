"""Emulated pipelines of two: a device that does not lead is killed, and the request goes on at the other group."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for
from tests.integration.stream import Stream


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    directory = tmp_path_factory.mktemp("pipelines")
    models = {"tiny": write_model(directory / "model")}
    running = RunningStack(directory / "state", models, "--emulate", "4xV100", "--pp", "2").start()
    yield running
    running.stop()


def test_a_group_ends_with_any_of_its_devices_and_comes_back(pipelines: RunningStack) -> None:
    plan = pipelines.status()["plan"]
    members = {each["worker_id"]: [rank["worker_id"] for rank in each["ranks"]] for each in plan["assignments"]}
    assert sorted(map(len, members.values())) == [2, 2]
    assert all(len(each["stage_latencies"]) == 2 for each in plan["assignments"])
    body = {"model": "tiny", "prompt": "the headway between two trains", "max_tokens": 400, "temperature": 0}
    answer = httpx.post(f"{pipelines.url}/v1/completions", json=body, timeout=120).json()["choices"][0]["text"]
    with ThreadPoolExecutor() as pool:
        stream = Stream(pipelines, pool, num_events=20, temperature=0, max_tokens=400)
        stream.wait()
        groups = pipelines.status()["fleet"]["groups"]
        leader = next(group["worker_id"] for group in groups if group["num_running"])
        follower = members[leader][1]
        leader_pid = pipelines.pid(leader)
        pipelines.kill(follower)
        assert stream.texts.result(timeout=120) == [answer]
    wait_for(lambda: pipelines.status()["controller"]["ready"], timeout_s=60)
    assert pipelines.pid(leader) != leader_pid
