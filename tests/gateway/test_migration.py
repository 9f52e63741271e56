"""A worker that hands its sequences over: their streams go on at the other one, and no token is lost or comes twice."""

import re

import httpx
import openai

from tests.gateway.test_resumption import PROMPT, worker_process
from tests.gateway.world import MODEL, Gateway, World, wait_for


def pauses(gateway: Gateway) -> tuple[float, float]:
    """Streams that were moved, and pauses that were measured."""
    text = httpx.get(f"{gateway.url}/metrics").text
    counts = [
        sum(float(value) for value in re.findall(rf"^{name}{{.*}} (.*)$", text, re.MULTILINE))
        for name in ("headway:streams_migrated_total", "headway:migration_pause_seconds_count")
    ]
    return counts[0], counts[1]


def test_streams_go_on_at_the_worker_that_they_were_moved_to(
    client: openai.OpenAI, gateway: Gateway, world: World
) -> None:
    options = {"model": MODEL, "prompt": PROMPT, "max_tokens": 100, "n": 3, "seed": 4, "temperature": 0.7}
    expected = [choice.text for choice in client.completions.create(**options).choices]
    world.reset()
    before = pauses(gateway)
    with worker_process() as (_, endpoint):
        world.router.workers = {"worker-0": world.worker_endpoint, "worker-5": "127.0.0.1:1", "worker-9": endpoint}
        world.worker.move_at = (20, "worker-9")
        choices = client.completions.create(**options).choices
    assert [choice.text for choice in choices] == expected
    first, second = world.router.routed
    assert (first.resumed, first.preferred_worker_id) == (False, "")
    assert (second.resumed, second.preferred_worker_id) == (True, "worker-9")
    assert not second.excluded_worker_ids
    wait_for(lambda: world.router.num_open == 0)
    assert sorted(release.outcome for release in world.router.released) == ["complete", "moved"]
    assert pauses(gateway) == (before[0] + 1, before[1] + 1)


def test_sequences_that_have_moved_are_submitted_one_by_one(client: openai.OpenAI, world: World) -> None:
    """Each has blocks of its own there; as a group, what they have not in common would be computed anew."""
    world.worker.step_s, world.worker.move_at = 0.01, (10, "worker-0")
    stream = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=30, n=2, stream=True)
    next(stream)
    wait_for(lambda: len(world.worker.groups) > 2)
    world.worker.move_at = None
    list(stream)
    assert [len(group) for group in world.worker.groups[:3]] == [2, 1, 1]
    assert all(submit.prompt_token_ids for submit in world.worker.submitted)


def test_a_target_that_dies_is_a_loss_like_any_other(client: openai.OpenAI, world: World) -> None:
    world.worker.move_at = (5, "worker-9")
    with worker_process(step_s=0.05) as (process, endpoint):
        world.router.workers = {"worker-0": world.worker_endpoint, "worker-9": endpoint}
        text = ""
        stream = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=60, temperature=0, stream=True)
        for number, chunk in enumerate(stream):
            text += chunk.choices[0].text
            if number == 8:
                world.worker.move_at = None
                process.kill()
    assert (PROMPT * 9).startswith(text)
    assert len(text) >= 60
    last = world.router.routed[-1]
    assert list(last.excluded_worker_ids) == ["worker-9"]
    assert last.preferred_worker_id == ""
