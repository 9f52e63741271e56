"""Leases that name a second worker: where the sequences go on, or who holds more of their prompt."""

import re
from contextlib import suppress

import httpx
import openai

from headway.v1 import worker_pb2
from tests.gateway.test_resumption import PROMPT, worker_process
from tests.gateway.world import MODEL, Gateway, World, wait_for

OPTIONS = {"model": MODEL, "prompt": PROMPT, "max_tokens": 60, "n": 2, "seed": 4, "temperature": 0.7}


def count(gateway: Gateway, name: str) -> float:
    text = httpx.get(f"{gateway.url}/metrics").text
    return sum(float(value) for value in re.findall(rf"^headway:{name}{{.*}} (.*)$", text, re.MULTILINE))


def test_streams_go_on_at_the_decode_worker_before_the_router_has_answered(
    client: openai.OpenAI, gateway: Gateway, world: World
) -> None:
    expected = [choice.text for choice in client.completions.create(**OPTIONS).choices]
    world.reset()
    handoffs, migrations = count(gateway, "prefill_handoffs_total"), count(gateway, "streams_migrated_total")
    with worker_process() as (_, endpoint):
        world.router.workers = {"worker-0": world.worker_endpoint, "worker-9": endpoint}
        world.router.decode_worker_id = "worker-9"
        world.worker.move_at = (3, "worker-9")
        choices = client.completions.create(**OPTIONS).choices
    assert [choice.text for choice in choices] == expected
    (submitted,) = world.worker.submit_groups
    assert submitted.decode_target == worker_pb2.MoveTarget(worker_id="worker-9", endpoint=endpoint)
    _, second = world.router.routed
    assert (second.resumed, second.preferred_worker_id) == (True, "worker-9")
    wait_for(lambda: world.router.num_open == 0)
    assert count(gateway, "prefill_handoffs_total") == handoffs + 1
    assert count(gateway, "streams_migrated_total") == migrations


def test_a_decode_worker_that_dies_is_a_loss_like_any_other(client: openai.OpenAI, world: World) -> None:
    expected = client.completions.create(**OPTIONS).choices[0].text
    world.reset()
    world.router.workers = {"worker-0": world.worker_endpoint, "worker-9": "127.0.0.1:1"}
    world.router.decode_worker_id = "worker-9"
    world.worker.step_s, world.worker.move_at = 0.02, (3, "worker-9")
    stream = client.completions.create(**OPTIONS | {"n": 1}, stream=True)
    text = next(stream).choices[0].text
    wait_for(lambda: len(world.router.routed) > 1)
    world.worker.move_at = None
    text += "".join(event.choices[0].text for event in stream)
    assert text == expected
    assert "worker-9" in world.router.routed[-1].excluded_worker_ids


def test_a_beam_search_stays(client: openai.OpenAI, world: World) -> None:
    world.router.decode_worker_id = "worker-0"
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4, "n": 2, "extra_body": {"use_beam_search": True}}
    with suppress(openai.APIError):  # the scripted worker knows no beams
        client.with_options(max_retries=0, timeout=2).completions.create(**body, temperature=0)
    assert world.router.routed[0].stays
    assert not world.worker.submit_groups[0].HasField("decode_target")


def test_the_worker_is_told_who_holds_more_of_the_prompt(client: openai.OpenAI, world: World) -> None:
    source = worker_pb2.PrefixSource(worker_id="worker-5", endpoint="host:5", num_blocks=7, timeout_s=0.25)
    world.router.source = source
    client.completions.create(**OPTIONS)
    assert world.worker.submit_groups[0].prefix_source == source
