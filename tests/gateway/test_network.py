"""Networks between gateway and worker that are slow, cut or silent, and names that lead nowhere."""

import openai
import pytest

from tests.gateway.relay import relaying
from tests.gateway.test_resumption import PROMPT, worker_process
from tests.gateway.world import MODEL, World

OPTIONS = {"model": MODEL, "prompt": PROMPT, "max_tokens": 300, "temperature": 0}
PATIENCE_S = 45.0  # gRPC's own time-out of a ping is longer


@pytest.fixture
def expected(client: openai.OpenAI, world: World) -> str:
    text: str = client.completions.create(**OPTIONS).choices[0].text
    world.reset()
    return text


def test_a_slow_network_makes_answers_late_and_not_wrong(client: openai.OpenAI, world: World, expected: str) -> None:
    with relaying(world.worker_endpoint) as relay:
        relay.delay_s = 0.05
        world.router.workers = {"worker-9": relay.endpoint}
        assert "".join(chunk.choices[0].text for chunk in client.completions.create(**OPTIONS, stream=True)) == expected
    assert len(world.router.routed) == 1


@pytest.mark.parametrize("fault", ["cut", "fall_silent"])
def test_a_stream_whose_network_breaks_goes_on_at_another_worker(
    client: openai.OpenAI, world: World, expected: str, fault: str
) -> None:
    with worker_process() as (_, endpoint), relaying(endpoint) as relay:
        world.router.workers = {"worker-9": relay.endpoint, "worker-0": world.worker_endpoint}
        text = ""
        stream = client.with_options(timeout=PATIENCE_S).completions.create(**OPTIONS, stream=True)
        for number, chunk in enumerate(stream):
            text += chunk.choices[0].text
            if number == 60:
                getattr(relay, fault)()
    assert text == expected
    assert [list(route.excluded_worker_ids) for route in world.router.routed] == [[], ["worker-9"]]


def test_a_worker_whose_name_cannot_be_resolved_is_passed_over(
    client: openai.OpenAI, world: World, expected: str
) -> None:
    world.router.workers = {"worker-9": "worker-9.invalid:50051", "worker-0": world.worker_endpoint}
    assert client.completions.create(**OPTIONS).choices[0].text == expected
    assert [list(route.excluded_worker_ids) for route in world.router.routed] == [[], ["worker-9"]]
