"""A worker that dies in mid-stream: the stream goes on elsewhere, and no token is lost or comes twice."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import openai
import pytest

from headway.core.errors import NotFoundError, UnavailableError
from tests.forked import ForkedProcess
from tests.gateway.conftest import RESUME_TIMEOUT_S
from tests.gateway.test_errors import check_error
from tests.gateway.world import MODEL, Gateway, World, free_port, wait_for

PROMPT = "The quick brown fox jumps. "


@contextmanager
def worker_process(*, step_s: float = 0.01) -> Iterator[tuple[ForkedProcess, str]]:
    """A worker that can be killed, and its endpoint."""
    port = free_port()
    with TemporaryDirectory() as directory:
        log = Path(directory) / "worker.log"
        arguments = (str(port), str(step_s))
        process = ForkedProcess(
            "tests.gateway.scripted_worker", arguments, imports="tests.gateway.scripted_worker", log=log
        )
        try:
            wait_for(lambda: _listens(port), log=log)
            yield process, f"127.0.0.1:{port}"
        finally:
            kill(process)


def kill(process: ForkedProcess) -> None:
    process.kill()
    process.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def greedy(client: openai.OpenAI) -> str:
    """The text of 80 tokens."""
    return client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=80, temperature=0).choices[0].text


def greedy_stream(client: openai.OpenAI, at_tenth: Callable[[], None], **options: Any) -> str:
    """The same, streamed, with something done at its tenth token."""
    text = ""
    stream = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=80, temperature=0, stream=True, **options)
    for number, chunk in enumerate(stream):
        text += chunk.choices[0].text
        if number == 10:
            at_tenth()
    return text


def test_streams_of_a_killed_worker_go_on_at_another(client: openai.OpenAI, world: World) -> None:
    options = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200, "n": 3, "seed": 4, "temperature": 0.7}
    expected = [choice.text for choice in client.completions.create(**options).choices]
    world.reset()
    with worker_process() as (process, endpoint):
        world.router.workers = {"worker-9": endpoint, "worker-0": world.worker_endpoint}
        texts = ["", "", ""]
        for number, chunk in enumerate(client.completions.create(**options, stream=True)):
            texts[chunk.choices[0].index] += chunk.choices[0].text
            if number == 90:
                kill(process)
    assert texts == expected
    first, second = world.router.routed
    assert not first.resumed
    assert second.resumed
    assert second.request_id == first.request_id
    assert list(second.excluded_worker_ids) == ["worker-9"]
    assert all(len(submit.output_token_ids) >= 29 for submit in world.worker.submitted)
    wait_for(lambda: world.router.num_open == 0)
    assert sorted(release.outcome for release in world.router.released) == ["complete", "moved"]


def test_a_stream_waits_for_a_worker_to_come_back(client: openai.OpenAI, world: World) -> None:
    expected = greedy(client)
    with worker_process() as (process, endpoint):
        world.router.workers = {"worker-9": endpoint}

        def kill_and_bring_another() -> None:
            kill(process)
            threading.Timer(0.7, world.router.workers.update, [{"worker-0": world.worker_endpoint}]).start()

        assert greedy_stream(client, kill_and_bring_another, stop="never") == expected


def test_the_time_at_a_worker_that_stood_still_is_no_time_without_one(client: openai.OpenAI, world: World) -> None:
    """Its death comes long after that of the worker before, and nothing came between: it is looked for another yet."""
    expected = greedy(client)
    world.reset()
    with worker_process() as (first, endpoint), worker_process(step_s=60.0) as (second, still):
        world.router.workers = {"worker-9": endpoint, "worker-8": still, "worker-0": world.worker_endpoint}

        def kill_both() -> None:
            kill(first)
            threading.Timer(RESUME_TIMEOUT_S + 0.5, second.kill).start()

        assert greedy_stream(client, kill_both) == expected
    assert list(world.router.routed[-1].excluded_worker_ids) == ["worker-9", "worker-8"]


def test_the_time_at_a_worker_that_then_serves_another_model_is_no_time_without_one(
    client: openai.OpenAI, world: World
) -> None:
    expected = greedy(client)
    world.reset()
    world.worker.step_s = 2 * RESUME_TIMEOUT_S
    world.worker.fail_submit = NotFoundError("It serves another model.")
    with worker_process() as (first, endpoint), worker_process() as (_, last):
        world.router.workers = {"worker-9": endpoint, "worker-8": world.worker_endpoint, "worker-7": last}
        assert greedy_stream(client, lambda: kill(first)) == expected
    assert list(world.router.routed[-1].excluded_worker_ids) == ["worker-9", "worker-8"]


def test_a_stream_that_finds_no_other_worker_ends_with_an_error(client: openai.OpenAI, world: World) -> None:
    with worker_process() as (process, endpoint):
        world.router.workers = {"worker-9": endpoint}
        stream = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=200, stream=True)
        next(stream)
        kill(process)
        with pytest.raises(openai.APIError, match="No worker serves"):
            list(stream)
    wait_for(lambda: world.router.num_open == 0)
    assert [release.outcome for release in world.router.released] == ["error"]


def test_a_request_that_no_worker_began_asks_once_more_and_is_refused(gateway: Gateway, world: World) -> None:
    world.router.workers = {"worker-9": "127.0.0.1:1"}
    response = httpx.post(f"{gateway.url}/v1/completions", json={"model": MODEL, "prompt": "ab"})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert [(route.resumed, list(route.excluded_worker_ids)) for route in world.router.routed] == [
        (False, []),
        (False, ["worker-9"]),
    ], "it waits before the third time only"
    wait_for(lambda: world.router.num_open == 0)


def test_a_request_that_meets_a_dead_worker_first_takes_another(client: openai.OpenAI, world: World) -> None:
    world.router.workers = {"worker-9": "127.0.0.1:1", "worker-0": world.worker_endpoint}
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=4, temperature=0)
    assert PROMPT.startswith(answer.choices[0].text)


def test_a_draining_worker_hands_its_sequences_on(client: openai.OpenAI, world: World) -> None:
    world.worker.fail_at = (5, UnavailableError("The worker is draining."))
    with worker_process() as (_, endpoint):
        world.router.workers = {"worker-0": world.worker_endpoint, "worker-9": endpoint}
        answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=30, temperature=0, n=2)
    assert all((PROMPT * 9).startswith(choice.text) for choice in answer.choices)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 60


def test_a_request_whose_model_is_deleted_ends_as_for_an_unknown_one(gateway: Gateway, world: World) -> None:
    """The worker has ended the model already when the request comes there."""
    world.worker.fail_submit = NotFoundError("There is no such model.", field="model")
    world.router.resumed_fault = NotFoundError("The model is not served here.", field="model")
    response = httpx.post(f"{gateway.url}/v1/completions", json={"model": MODEL, "prompt": "ab"})
    check_error(response, status=404, param="model", code="model_not_found", words="not served here")
    assert [route.resumed for route in world.router.routed] == [False, True]
    wait_for(lambda: world.router.num_open == 0)


def test_prompt_logprobs_are_asked_for_once(client: openai.OpenAI, world: World) -> None:
    world.worker.fail_at = (5, UnavailableError("The worker is draining."))
    with worker_process() as (_, endpoint):
        world.router.workers = {"worker-0": world.worker_endpoint, "worker-9": endpoint}
        answer = client.completions.create(
            model=MODEL, prompt=[40, 41, 42], max_tokens=9, temperature=0, echo=True, logprobs=1
        )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert len(logprobs.tokens or ()) == len(logprobs.token_logprobs or ()) == 12
