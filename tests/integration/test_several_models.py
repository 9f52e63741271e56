"""Two models that generate and one that does not, together on one worker."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from headway.v1 import controller_pb2, controller_pb2_grpc, planner_pb2, worker_pb2, worker_pb2_grpc
from tests.checkpoints import make_checkpoint
from tests.encoders import make_encoder
from tests.integration.faults import wait_until_renewed, worker_pids
from tests.integration.stack import RunningStack, wait_for
from tests.integration.stream import Stream

PROMPTS = ["the headway between two trains", "signals", "one more train an hour", "line one goes"]
TEXTS = ["the headway between two trains", "signals"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("models")
    return {
        "tiny": checkpoint,
        "other": make_checkpoint(directory / "other", "opt", seed=3, max_position_embeddings=2048),
        "bert": make_encoder(directory / "bert", "bert"),
    }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> Iterator[RunningStack]:
    running = RunningStack(tmp_path_factory.mktemp("stack"), models, "--workers", "1", "--no-profile").start()
    yield running
    running.stop()


def listed(stack: RunningStack) -> list[str]:
    return [model["id"] for model in httpx.get(f"{stack.url}/v1/models", timeout=60).json()["data"]]


def complete(stack: RunningStack, model: str, prompt: str) -> str:
    body = {"model": model, "prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def embed(stack: RunningStack) -> np.ndarray:
    answer = httpx.post(f"{stack.url}/v1/embeddings", json={"model": "bert", "input": TEXTS}, timeout=60)
    assert answer.status_code == 200, answer.text
    return np.array([item["embedding"] for item in answer.json()["data"]])


def test_all_answer_at_once_as_each_does_alone(stack: RunningStack) -> None:
    alone = {(model, prompt): complete(stack, model, prompt) for model in ("tiny", "other") for prompt in PROMPTS}
    vectors = embed(stack)
    with ThreadPoolExecutor(12) as pool:
        completions = {key: pool.submit(complete, stack, *key) for key in alone for _ in range(2)}
        embeddings = [pool.submit(embed, stack) for _ in range(8)]
        assert {key: answer.result() for key, answer in completions.items()} == alone
        for answer in embeddings:
            np.testing.assert_allclose(answer.result(), vectors, rtol=0, atol=1e-5)
    assert alone["tiny", PROMPTS[0]] != alone["other", PROMPTS[0]]


def test_people_see_every_model(stack: RunningStack) -> None:
    (worker,) = stack.status()["controller"]["workers"]
    assert sorted(worker["models"]) == ["bert", "other", "tiny"]
    shown = stack.headway("status").stdout
    assert all(name in shown for name in ("tiny", "other", "bert"))
    usages = json.loads(stack.headway("kv", "top", "--json").stdout)
    assert {usage["model"] for usage in usages} == {"tiny", "other", "bert"}
    text = " ".join(stack.headway("plan", "explain").stdout.split())
    assert "worker-0 serves tiny, other and bert together" in text
    assert {model["id"] for model in httpx.get(f"{stack.url}/v1/models").json()["data"]} == {"tiny", "other", "bert"}


def test_a_prefix_is_pinned_for_its_own_model_only(stack: RunningStack, tmp_path: Path) -> None:
    text = tmp_path / "rules.txt"
    text.write_text("the headway between two trains is the time from one to the next " * 4)
    added = stack.headway("prefix", "pin", "--name", "rules", "--model", "tiny", "--file", str(text))
    assert added.returncode == 0, added.stderr

    def pinned() -> dict[str, int]:
        usages = json.loads(stack.headway("kv", "top", "--json").stdout)
        return {usage["model"]: usage["num_pinned_blocks"] for usage in usages}

    wait_for(lambda: pinned()["tiny"] > 0, every_s=0.5)
    assert pinned()["other"] == 0
    assert stack.headway("prefix", "unpin", "rules").returncode == 0


def test_streams_of_all_models_resume_after_the_worker_is_killed(stack: RunningStack) -> None:
    with ThreadPoolExecutor(2) as pool:
        fields: dict[str, Any] = {"temperature": 0}
        pids = worker_pids(stack)
        expected = [Stream(stack, pool, model=model, **fields).texts.result() for model in ("tiny", "other")]
        streams = [Stream(stack, pool, model=model, **fields) for model in ("tiny", "other")]
        for stream in streams:
            stream.wait()
        assert not any(stream.texts.done() for stream in streams)
        os.kill(pids["worker-0"], signal.SIGKILL)
        assert [stream.texts.result() for stream in streams] == expected
    wait_until_renewed(stack, pids)
    assert embed(stack).shape[0] == len(TEXTS)


def test_a_model_is_unloaded_and_loaded_again_while_another_streams(stack: RunningStack) -> None:
    expected = complete(stack, "other", PROMPTS[0])
    endpoint = stack.endpoint("worker-0")
    with (
        ThreadPoolExecutor(2) as pool,
        grpc.insecure_channel(stack.stack.controller_endpoint) as channel,
        grpc.insecure_channel(endpoint) as worker_channel,
    ):
        alone = Stream(stack, pool, temperature=0).texts.result()
        running = Stream(stack, pool, temperature=0)
        running.wait()
        is_over = threading.Event()

        def stream_on() -> list[list[str]]:
            answers = [running.texts.result()]
            while not is_over.is_set():
                answers.append(Stream(stack, pool, temperature=0).texts.result())
            return answers

        controller = controller_pb2_grpc.ControllerServiceStub(channel)
        worker = worker_pb2_grpc.WorkerServiceStub(worker_channel)

        def models() -> list[str]:
            found = worker.GetWorker(worker_pb2.GetWorkerRequest(), metadata=stack.metadata).replicas
            return sorted(replica.model for replica in found if replica.state == "ready")

        plan = controller.GetPlan(controller_pb2.GetPlanRequest(), timeout=10, metadata=stack.metadata).plan
        fewer = planner_pb2.ServingPlan()
        fewer.CopyFrom(plan)
        del fewer.models[:], fewer.assignments[:]
        fewer.models.extend(model for model in plan.models if model.name != "other")
        fewer.assignments.extend(assignment for assignment in plan.assignments if assignment.model != "other")
        answers = pool.submit(stream_on)
        try:
            changes = controller.ApplyPlan(
                controller_pb2.ApplyPlanRequest(plan=fewer), timeout=10, metadata=stack.metadata
            ).changes
            assert list(changes) == ["worker-0: drain other"]
            wait_for(lambda: models() == ["bert", "tiny"])
            controller.ApplyPlan(controller_pb2.ApplyPlanRequest(plan=plan), timeout=10, metadata=stack.metadata)
            wait_for(lambda: models() == ["bert", "other", "tiny"])
        finally:
            is_over.set()
        assert all(answer == alone for answer in answers.result())
    assert "other" in listed(stack)
    stack.wait_until_ready()
    assert complete(stack, "other", PROMPTS[0]) == expected


def test_models_that_have_no_room_together_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    running = RunningStack(tmp_path / "stack", models)
    arguments = [part for name, path in models.items() for part in ("--model", f"{name}={path}")]
    options = ("--workers", "1", "--memory", "405MiB", "--port", "0", "--detach")
    result = running.headway("up", *arguments, *options, timeout_s=90)
    assert result.returncode == 1
    assert "3 models have no room together on 1 worker" in result.stderr, result.stderr + os.linesep + running.logs()
    assert running.processes() == []
