"""Clients that leave: the worker hears of it at once, and the lease ends."""

import threading

import httpx
import pytest

from tests.gateway.world import MODEL, Gateway, World, wait_for

BODY = {"model": MODEL, "prompt": "ab", "max_tokens": 400, "temperature": 0}


def test_a_stream_whose_client_leaves_is_cancelled_within_a_step(gateway: Gateway, world: World) -> None:
    world.worker.step_s = 0.05
    with httpx.stream("POST", f"{gateway.url}/v1/completions", json=BODY | {"stream": True, "n": 2}) as response:
        lines = response.iter_lines()
        for _ in range(3):
            next(lines)
        num_steps = world.worker.num_steps
    wait_for(lambda: len(world.worker.cancelled) == 2)
    assert world.worker.num_steps <= num_steps + 2
    assert sorted(world.worker.cancelled) == sorted(submit.request_id for submit in world.worker.submitted)
    assert world.worker.num_cancel_messages == 1
    wait_for(lambda: world.router.num_open == 0)
    assert [release.outcome for release in world.router.released] == ["cancelled"]


@pytest.mark.parametrize("prompt", ["ab", ["ab", "cd", "ef"]])
def test_a_whole_answer_whose_client_leaves_is_cancelled(gateway: Gateway, world: World, prompt: object) -> None:
    world.worker.step_s = 0.02
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{gateway.url}/v1/completions", json=BODY | {"prompt": prompt}, timeout=0.5)
    num_prompts = 1 if prompt == "ab" else 3
    wait_for(lambda: len(world.worker.cancelled) == num_prompts)
    wait_for(lambda: world.router.num_open == 0)
    assert [release.outcome for release in world.router.released] == ["cancelled"] * num_prompts


def test_a_request_whose_client_leaves_before_it_has_a_place_is_taken_back(gateway: Gateway, world: World) -> None:
    world.router.delay_s = 5.0
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{gateway.url}/v1/completions", json=BODY, timeout=0.3)
    wait_for(lambda: len(world.router.withdrawn) == 1)
    assert world.router.withdrawn[0].request_id == world.router.routed[0].request_id
    assert world.router.leased == []
    assert world.worker.submitted == []


def test_a_client_that_leaves_while_sending_does_no_harm(gateway: Gateway) -> None:
    def half() -> object:
        yield b'{"model": "'
        raise RuntimeError("away")

    with pytest.raises(RuntimeError, match="away"):
        httpx.post(f"{gateway.url}/v1/completions", content=half())  # type: ignore[arg-type]
    assert httpx.get(f"{gateway.url}/health").status_code == 200


def test_a_slow_reader_gets_everything(gateway: Gateway) -> None:
    """While one client does not read, others are answered; what came for it meanwhile is all there when it does."""
    with httpx.stream("POST", f"{gateway.url}/v1/completions", json=BODY | {"stream": True}, timeout=30) as response:
        lines = response.iter_lines()
        next(lines)
        others = [threading.Thread(target=httpx.post, args=(f"{gateway.url}/v1/completions",), kwargs={"json": BODY})]
        for other in others:
            other.start()
            other.join(20)
            assert not other.is_alive()
        assert sum(line.startswith("data: {") for line in lines) == 399
