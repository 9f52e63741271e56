"""One model over two workers, as a user runs it: `headway up --tp 2`."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.integration.conftest import OPTIONS
from tests.integration.faults import LONG, check, is_ready, stopped, stream, wait_until_renewed, worker_pids
from tests.integration.stack import RunningStack, wait_for

PROMPTS = ["trains run", "the headway between two trains", "1234567890 + 42", "Über die Brücke fährt früh " * 12]
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8, "seed": 7, "top_p": 0.9},
    "penalised": {"temperature": 0, "frequency_penalty": 0.4},
}


def ask(stack: RunningStack, **fields: Any) -> str:
    body = {"model": "tiny", "max_tokens": 48, "temperature": 0, "ignore_eos": True}
    response = httpx.post(f"{stack.url}/v1/completions", json=body | fields, timeout=120)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["text"]
    return text


def answers(stack: RunningStack) -> dict[str, list[str]]:
    """To all prompts, in all ways, all at the same time; and to the long one."""
    with ThreadPoolExecutor(16) as pool:
        running = {
            name: [pool.submit(ask, stack, prompt=prompt, **way) for prompt in PROMPTS] for name, way in WAYS.items()
        }
        running["long"] = [pool.submit(ask, stack, **LONG)]
        return {name: [answer.result() for answer in found] for name, found in running.items()}


def cores_of(pid: int) -> set[int]:
    """That any thread of the process may run on."""
    return set().union(*(os.sched_getaffinity(thread.id) for thread in psutil.Process(pid).threads()))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> dict[str, list[str]]:
    """What one worker answers."""
    alone = RunningStack(tmp_path_factory.mktemp("alone"), {"tiny": checkpoint}, *OPTIONS).start()
    try:
        return answers(alone)
    finally:
        alone.stop()


@pytest.fixture(scope="module")
def group(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, expected: dict[str, list[str]]
) -> Iterator[RunningStack]:
    """The same model on a group of two workers. `stop` checks that nothing is left of it."""
    directory = tmp_path_factory.mktemp("group")
    running = RunningStack(directory, {"tiny": checkpoint}, "--tp", "2", "--max-model-len", "1024").start()
    yield running
    running.stop()


def test_two_workers_give_the_tokens_of_one(group: RunningStack, expected: dict[str, list[str]]) -> None:
    assert answers(group) == expected


def test_the_openai_client_streams_from_a_group(group: RunningStack, expected: dict[str, list[str]]) -> None:
    client = openai.OpenAI(base_url=f"{group.url}/v1", api_key="none", max_retries=0)
    chunks = client.completions.create(
        model="tiny", prompt=PROMPTS[1], max_tokens=48, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected["greedy"][1]


def test_status_tells_who_stands_where(group: RunningStack) -> None:
    status = group.status()
    workers = {worker["worker_id"]: worker for worker in status["controller"]["workers"]}
    assert {name: worker.get("rank", 0) for name, worker in workers.items()} == {"worker-0": 0, "worker-1": 1}
    assert {worker["num_ranks"] for worker in workers.values()} == {2}
    assert {worker["group_id"] for worker in workers.values()} == {"group-0"}
    assert [load["worker_id"] for load in status["fleet"]["groups"]] == ["worker-0"]


def test_ranks_run_on_cores_of_their_own_with_all_their_threads(group: RunningStack) -> None:
    cores = {worker: cores_of(pid) for worker, pid in worker_pids(group).items()}
    if len(os.sched_getaffinity(0)) == 1:
        assert cores["worker-0"] == cores["worker-1"]
        return
    assert not cores["worker-0"] & cores["worker-1"]
    processes = {process["name"]: process.get("cores") for process in group.status()["controller"]["processes"]}
    assert {name: set(processes[name]) for name in cores} == cores
    assert "on core" in group.headway("status").stdout


@pytest.mark.parametrize("name", ["worker-1", "worker-0"])
def test_kill_9_of_either_ends_both_and_the_group_is_back_by_itself(
    group: RunningStack, expected: dict[str, list[str]], name: str
) -> None:
    wait_for(lambda: is_ready(group), every_s=0.2)
    before = worker_pids(group)
    check(stream(group, after_tokens=20, then=lambda: os.kill(before[name], signal.SIGKILL)), expected["long"][0])
    wait_until_renewed(group, before)
    assert ask(group, **LONG) == expected["long"][0]


def test_kill_9_of_an_idle_rank_is_noticed_without_a_request(group: RunningStack) -> None:
    wait_for(lambda: is_ready(group), every_s=0.2)
    before = worker_pids(group)
    os.kill(before["worker-1"], signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(before["worker-0"]))
    wait_until_renewed(group, before)


@pytest.mark.parametrize("name", ["worker-1", "worker-0"])
def test_a_short_stop_of_either_is_a_pause(group: RunningStack, expected: dict[str, list[str]], name: str) -> None:
    wait_for(lambda: is_ready(group), every_s=0.2)
    before = worker_pids(group)
    with ExitStack() as ends:
        stop = stopped(before[name], for_s=5.0)
        outcome = stream(group, after_tokens=20, then=lambda: ends.enter_context(stop))
    assert outcome == (expected["long"][0], "")
    wait_for(lambda: is_ready(group), every_s=0.2)
    assert worker_pids(group) == before


def test_a_dead_controllers_successor_adopts_the_group(group: RunningStack) -> None:
    wait_for(lambda: is_ready(group), every_s=0.2)
    before, controller = worker_pids(group), group.stack.controller
    assert controller is not None
    os.kill(controller.pid, signal.SIGKILL)
    assert ask(group, prompt="trains run")
    wait_for(lambda: group.headway("status", "--json").returncode == 0)
    wait_for(lambda: is_ready(group), every_s=0.2)
    assert worker_pids(group) == before
