"""A request that takes workers down, on workers that are real processes: it ends, and nobody else does."""

import asyncio
import threading
from contextlib import ExitStack
from subprocess import Popen

import httpx
import openai
import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.request import GenerationRequest, SamplingParams
from headway.gateway.quarantine import Quarantine, Trial
from tests.gateway.scripted_worker import DEADLY_ID
from tests.gateway.test_resumption import worker_process
from tests.gateway.world import MODEL, Gateway, World

NEIGHBOUR = {"model": MODEL, "prompt": [20, 21, 22, 23], "max_tokens": 150, "temperature": 0.0}


def deadly(position: int) -> dict[str, object]:
    """A request whose worker dies when it comes to that token of the output."""
    prompt = [30 + position] * position + [DEADLY_ID]
    return {"model": MODEL, "prompt": prompt, "max_tokens": 20, "temperature": 0.0, "seed": 1}


def start_workers(stack: ExitStack, world: World, num: int) -> list[Popen[str]]:
    """In the order in which the router takes them; the last one is the world's own."""
    found = [stack.enter_context(worker_process()) for _ in range(num)]
    endpoints = {f"worker-{9 - index}": endpoint for index, (_, endpoint) in enumerate(found)}
    world.router.workers = {**endpoints, "worker-0": world.worker_endpoint}
    return [process for process, _ in found]


@pytest.mark.parametrize(("position", "num_dead"), [(0, 2), (7, 3)])
def test_a_request_that_takes_workers_down_ends_and_its_neighbours_go_on(
    gateway: Gateway, client: openai.OpenAI, world: World, position: int, num_dead: int
) -> None:
    """One that kills at once is told by its second worker, one that kills later by its third."""
    expected = client.completions.create(**NEIGHBOUR).choices[0].text
    texts: list[str] = []
    with ExitStack() as stack:
        processes = start_workers(stack, world, 4)
        ask = lambda: texts.append(client.completions.create(**NEIGHBOUR).choices[0].text)  # noqa: E731
        neighbours = [threading.Thread(target=ask) for _ in range(6)]
        for neighbour in neighbours:
            neighbour.start()
        refused = httpx.post(f"{gateway.url}/v1/completions", json=deadly(position), timeout=60)
        for neighbour in neighbours:
            neighbour.join()
        assert refused.status_code == 400
        assert "two workers died while they computed it" in refused.json()["error"]["message"]
        assert [process.poll() is not None for process in processes].count(True) == num_dead
        again = httpx.post(f"{gateway.url}/v1/completions", json=deadly(position) | {"seed": 2}, timeout=60)
        assert again.status_code == 400
        assert [process.poll() is not None for process in processes].count(True) == num_dead
    assert texts == [expected] * 6


REQUEST = GenerationRequest(
    request_id="a", model="m", prompt_token_ids=(1, 2), sampling=SamplingParams(temperature=0.5, seed=3)
)


def sampled(**sampling: object) -> GenerationRequest:
    return GenerationRequest(
        request_id="b",
        model="m",
        prompt_token_ids=(1, 2),
        sampling=SamplingParams(**{"temperature": 0.5, **sampling}),  # type: ignore[arg-type]
    )


async def test_quarantine_ends_after_an_hour_and_holds_for_the_same_request_only() -> None:
    now_s = 0.0
    quarantine = Quarantine(lambda: now_s)
    quarantine.check(REQUEST)
    quarantine.seal(REQUEST)
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        quarantine.check(sampled(seed=4))
    quarantine.check(sampled(temperature=0.6))
    now_s = 3599.0
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        quarantine.check(REQUEST)
    now_s = 3600.0
    quarantine.check(REQUEST)


async def test_suspects_are_tried_one_at_a_time_and_the_one_that_is_well_is_none_any_more() -> None:
    quarantine = Quarantine(lambda: 0.0)
    trials = [Trial(quarantine, model="m") for _ in range(3)]
    for trial in trials:
        await trial.begin()
        trial.note_death(REQUEST)
    await trials[0].begin()
    others = [asyncio.create_task(trial.begin()) for trial in trials[1:]]
    await asyncio.sleep(0)
    assert not any(task.done() for task in others)
    trials[0].note_output()
    await others[0]
    assert not others[1].done()
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        trials[1].note_death(REQUEST)
    await others[1]
    trials[2].end()
    await trials[0].begin()
    trials[0].note_death(REQUEST)  # a suspect again, since nothing came of the worker where it was


async def test_one_that_leaves_while_it_waits_for_its_turn_takes_none() -> None:
    quarantine = Quarantine(lambda: 0.0)
    first, second, third = (Trial(quarantine, model="m") for _ in range(3))
    for trial in (first, second, third):
        trial.note_death(REQUEST)
    await first.begin()
    waiting = asyncio.create_task(second.begin())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    second.end()
    first.end()
    await asyncio.wait_for(third.begin(), timeout=10)
