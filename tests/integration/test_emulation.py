"""A stack of four emulated V100s: real processes that serve two models and compute nothing."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.emulation import STAGE_S, write_model, write_profiles
from tests.integration.stack import RunningStack, wait_for
from tests.integration.stream import Stream

MAX_WORKER_BYTES = 80 * 1024**2


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    directory = tmp_path_factory.mktemp("emulated")
    running = RunningStack(
        directory / "state",
        {"tiny": write_model(directory / "model"), "bert": Path("profile:bert")},
        *("--emulate", "4xV100", "--stage-profiles", str(write_profiles(directory / "profiles.json"))),
    ).start()
    yield running
    running.stop()


def complete(stack: RunningStack, prompt: str = "the headway between two trains", **fields: Any) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 20, "temperature": 0} | fields
    response = httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def workers(stack: RunningStack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.status()["controller"]["workers"]
    return found


def test_answers_are_of_the_length_asked_for_and_always_the_same(emulated: RunningStack) -> None:
    first, again, other = (complete(emulated, prompt) for prompt in ("a b c", "a b c", "the trains run late"))
    assert first["choices"] == again["choices"] != other["choices"]
    assert first["usage"]["completion_tokens"] == 20
    assert first["choices"][0]["finish_reason"] == "length"


def test_steps_take_what_the_plan_says(emulated: RunningStack) -> None:
    """No less, and each once: how much more depends on who else uses the machine."""
    plan = emulated.status()["plan"]
    tpot_s = min(each["prediction"]["tpot_s"] for each in plan["assignments"] if each["model"] == "tiny")
    started_s = time.monotonic()
    complete(emulated, max_tokens=30)
    assert time.monotonic() - started_s > 29 * 0.9 * tpot_s
    before = emulated.metric("headway:engine_step_seconds_count")
    started_s = time.monotonic()
    body = {"model": "bert", "input": ["one", "two", "three"]}
    before_s = emulated.metric("headway:engine_step_seconds_sum")
    vectors = [httpx.post(f"{emulated.url}/v1/embeddings", json=body, timeout=60).json()["data"] for _ in range(2)]
    assert time.monotonic() - started_s >= 6 * STAGE_S
    assert emulated.metric("headway:engine_step_seconds_sum") - before_s >= 6 * STAGE_S * 0.99
    assert emulated.metric("headway:engine_step_seconds_count") - before == 6
    assert vectors[0] == vectors[1]
    assert len({tuple(entry["embedding"]) for entry in vectors[0]}) == 3


def test_everything_says_that_it_is_emulated(emulated: RunningStack) -> None:
    models = httpx.get(f"{emulated.url}/v1/models").json()["data"]
    assert all(model["emulated"] for model in models)
    assert complete(emulated, max_tokens=1)["system_fingerprint"].startswith("fp_emulated_")
    assert "4 x V100-16 emulated, answers are made up" in emulated.headway("status").stdout
    assert "on emulated 4 x V100-16" in emulated.headway("plan", "show").stdout
    assert all(worker["hardware"]["is_emulated"] for worker in workers(emulated))
    assert emulated.metric("headway:emulated_device") == 4
    assert "is emulated" in (emulated.state_dir / "logs" / "worker-0.log").read_text()


def test_a_client_that_leaves_frees_its_place(emulated: RunningStack) -> None:
    body = {"model": "tiny", "prompt": "a long answer", "max_tokens": 1900, "stream": True}
    with httpx.stream("POST", f"{emulated.url}/v1/completions", json=body, timeout=60) as response:
        next(response.iter_lines())
    wait_for(lambda: not any(group["num_running"] for group in emulated.status()["fleet"]["groups"]))
    assert emulated.metric("headway:generation_tokens_total") < 1900


def test_a_killed_worker_is_replaced_and_its_stream_goes_on_as_it_would_have(emulated: RunningStack) -> None:
    undisturbed = complete(emulated, max_tokens=400)["choices"][0]["text"]
    with ThreadPoolExecutor() as pool:
        stream = Stream(emulated, pool, num_events=20, temperature=0, max_tokens=400)
        stream.wait()
        running = emulated.status()["fleet"]["groups"]
        busy = next(group["worker_id"] for group in running if group["num_running"])
        emulated.kill(busy)
        assert stream.texts.result(timeout=120) == [undisturbed]
    wait_for(lambda: all(worker["state"] == "ready" for worker in workers(emulated)), timeout_s=60)
    assert len(workers(emulated)) == 4


def test_a_worker_is_small_and_has_no_torch(emulated: RunningStack) -> None:
    """After all that the tests above had it do."""
    for worker in workers(emulated):
        process = psutil.Process(emulated.pid(worker["worker_id"]))
        mapped = " ".join(mapping.path for mapping in process.memory_maps())
        assert "torch" not in mapped
        assert "numpy" not in mapped
        assert process.memory_info().rss < MAX_WORKER_BYTES
