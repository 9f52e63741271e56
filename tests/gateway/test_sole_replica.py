"""Where only one worker can take a model's requests, they set out before the router has answered."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from headway.core.errors import ResourceExhaustedError, UnavailableError
from tests.gateway import scripted_worker
from tests.gateway.relay import relaying
from tests.gateway.scripted_worker import ScriptedWorker
from tests.gateway.test_resumption import worker_process
from tests.gateway.world import MODEL, PLAIN_MODEL, Gateway, World, wait_for

PROMPT = "The quick brown fox"
BODY = {"model": MODEL, "prompt": PROMPT, "max_tokens": 8, "temperature": 0}


@pytest.fixture
def text(client: openai.OpenAI, world: World) -> Iterator[str]:
    """An answer after which the gateway knows where the model's requests go, and the router is slow."""
    world.router.is_sole_replica = True
    answer = client.completions.create(**BODY).choices[0].text
    wait_for(lambda: world.router.num_open == 0)
    world.worker.submitted.clear()
    world.router.delay_s = 0.3
    step_s = world.worker.step_s
    yield answer
    world.router.delay_s, world.router.is_sole_replica, world.worker.step_s = 0.0, False, step_s
    client.completions.create(**BODY)  # and it knows it no more


def test_a_request_is_computed_while_it_is_routed(client: openai.OpenAI, world: World, text: str) -> None:
    num_leased = len(world.router.leased)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.completions.create, **BODY)
        wait_for(lambda: len(world.worker.submitted) == 1)
        assert len(world.router.leased) == num_leased
        assert answer.result().choices[0].text == text
    assert len(world.worker.submitted) == 1
    assert world.worker.cancelled == []


def test_a_stop_string_ends_it_though_more_has_come_meanwhile(client: openai.OpenAI, world: World, text: str) -> None:
    """All is there once the router has answered: what came behind the stop string is dropped."""
    assert text
    choice = client.completions.create(**BODY | {"max_tokens": 60, "stop": "brown"}).choices[0]
    assert (choice.text, choice.finish_reason) == ("The quick ", "stop")
    body = BODY | {"max_tokens": 60, "n": 2, "temperature": 0.7, "seed": 0}
    world.router.delay_s = 0.0
    whole = [choice.text for choice in client.completions.create(**body).choices]
    world.router.delay_s = 0.3
    stopped = client.completions.create(**body | {"stop": "qui"}).choices
    assert [choice.text for choice in stopped] == [part.split("qui")[0] for part in whole]


def test_it_waits_for_its_lease_where_an_objective_may_refuse_it(client: openai.OpenAI, world: World) -> None:
    world.router.is_sole_replica = True
    body = BODY | {"model": PLAIN_MODEL}
    client.completions.create(**body)
    world.router.fault = ResourceExhaustedError("too slow")
    num_submitted = len(world.worker.submitted)
    with pytest.raises(openai.RateLimitError):
        client.with_options(max_retries=0).completions.create(**body)
    assert len(world.worker.submitted) == num_submitted


def test_a_request_that_is_refused_is_taken_back(client: openai.OpenAI, world: World, text: str) -> None:
    world.worker.step_s = 0.2
    world.router.fault = ResourceExhaustedError("too many")
    with pytest.raises(openai.RateLimitError):
        client.with_options(max_retries=0).completions.create(**BODY)
    (submitted,) = world.worker.submitted
    wait_for(lambda: world.worker.cancelled == [submitted.request_id])
    world.router.fault = None


def test_a_request_that_is_sent_elsewhere_is_computed_there(client: openai.OpenAI, world: World, text: str) -> None:
    world.worker.step_s = 0.2
    with worker_process() as (_, endpoint):
        world.router.workers = {"worker-9": endpoint}
        assert client.completions.create(**BODY).choices[0].text == text
        (submitted,) = world.worker.submitted
        wait_for(lambda: world.worker.cancelled == [submitted.request_id])
        world.router.workers = {"worker-0": world.worker_endpoint}


def test_what_a_worker_said_before_it_was_left_is_not_taken_for_what_it_says_when_it_is_asked_again(
    client: openai.OpenAI, world: World, text: str
) -> None:
    """It was taken back for another worker, which refused it, and came again while tokens were still on their way."""
    refusing = ScriptedWorker(fail_submit=UnavailableError("The worker is going away."))
    server, port = world.run(scripted_worker.start(refusing))
    with relaying(world.worker_endpoint) as relay:
        world.router.workers, world.router.delay_s = {"worker-0": relay.endpoint}, 0.0
        assert client.completions.create(**BODY).choices[0].text == text
        world.worker.submitted.clear()
        world.router.workers = {"worker-9": f"127.0.0.1:{port}", "worker-0": relay.endpoint}
        world.router.delay_s, world.worker.step_s, relay.delay_s = 0.1, 0.1, 0.3
        assert client.completions.create(**BODY).choices[0].text == text
        assert len(refusing.submit_groups) == 1
        first, second = (each.request_id for each in world.worker.submitted)
        assert second == f"{first}.2"
        world.router.workers = {"worker-0": world.worker_endpoint}
    world.run(server.stop(None))


def test_a_client_that_leaves_takes_its_request_back_from_both(gateway: Gateway, world: World, text: str) -> None:
    world.worker.step_s = 0.5
    world.router.delay_s = 5.0
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{gateway.url}/v1/completions", json=BODY, timeout=0.3)
    wait_for(lambda: len(world.router.withdrawn) == 1)
    (submitted,) = world.worker.submitted
    wait_for(lambda: world.worker.cancelled == [submitted.request_id])
