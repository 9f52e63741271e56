"""What the router hears, once before and once after each request."""

import httpx
import openai

from headway.gateway.request_id import check_request_id
from tests.gateway.world import MODEL, PLAIN_MODEL, Gateway, World, wait_for


def test_a_request_is_routed_once_and_released_once(client: openai.OpenAI, world: World) -> None:
    client.completions.create(model=MODEL, prompt=[5, 6, 7], max_tokens=4)
    (request,) = world.router.routed
    assert (request.model, request.num_prompt_tokens, request.max_output_tokens) == (MODEL, 3, 4)
    assert request.gateway_id.startswith("gateway-")
    assert not request.resumed
    assert not request.block_hashes  # one replica: a prefix makes no difference
    wait_for(lambda: world.router.num_open == 0)
    (release,) = world.router.released
    assert release.lease_id == world.router.leased[0]
    assert release.outcome == "complete"
    assert (release.usage.prompt_tokens, release.usage.completion_tokens) == (3, 4)
    assert 0 < release.ttft_s < 5
    assert 0 < release.tpot_s < 1


def test_objectives_come_from_headers_or_the_deployment(client: openai.OpenAI, world: World) -> None:
    client.completions.create(model=MODEL, prompt="ab", max_tokens=1)
    assert not world.router.routed[-1].HasField("slo") or not world.router.routed[-1].slo.ListFields()
    headers = {"x-headway-slo-ttft-ms": "250"}
    client.completions.create(model=MODEL, prompt="ab", max_tokens=1, extra_headers=headers)
    assert world.router.routed[-1].slo.ttft_s == 0.25
    assert not world.router.routed[-1].slo.HasField("tpot_s")
    client.completions.create(model=PLAIN_MODEL, prompt="ab", max_tokens=1, extra_headers=headers)
    assert (world.router.routed[-1].slo.ttft_s, world.router.routed[-1].slo.tpot_s) == (0.25, 5.0)


def test_blocks_are_hashed_where_an_objective_depends_on_them(client: openai.OpenAI, world: World) -> None:
    client.completions.create(model=PLAIN_MODEL, prompt=[7] * 40, max_tokens=1)
    assert len(world.router.routed[-1].block_hashes) == 2


def test_the_request_id_goes_all_the_way(gateway: Gateway, world: World) -> None:
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 1}
    response = httpx.post(f"{gateway.url}/v1/completions", json=body, headers={"x-request-id": "mine-7"})
    assert response.headers["x-request-id"] == "mine-7"
    assert world.router.routed[-1].request_id.startswith("mine-7.")
    assert world.worker.last.request_id.startswith("mine-7.")
    first, second = (httpx.post(f"{gateway.url}/v1/completions", json=body).headers["x-request-id"] for _ in range(2))
    assert first != second
    assert check_request_id(first) == first


def test_one_request_id_may_run_twice_at_once(gateway: Gateway, world: World) -> None:
    world.worker.step_s = 0.02
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 5, "stream": True}
    headers = {"x-request-id": "twice"}
    with (
        httpx.stream("POST", f"{gateway.url}/v1/completions", json=body, headers=headers) as first,
        httpx.stream("POST", f"{gateway.url}/v1/completions", json=body, headers=headers) as second,
    ):
        assert "[DONE]" in second.read().decode()
        assert "[DONE]" in first.read().decode()
    assert len({submit.request_id for submit in world.worker.submitted}) == 2


def test_many_requests_share_one_stream_to_the_router_and_one_to_the_worker(
    client: openai.OpenAI, world: World
) -> None:
    client.completions.create(model=MODEL, prompt="ab", max_tokens=1)
    num_streams = world.worker.num_streams, world.router.num_streams
    client.completions.create(model=MODEL, prompt=["a", "b", "c"], n=2, max_tokens=3)
    assert (world.worker.num_streams, world.router.num_streams) == num_streams


def test_while_there_is_no_router_streams_go_on_and_new_requests_are_refused(gateway: Gateway, world: World) -> None:
    world.worker.step_s = 0.02
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 100, "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v1/completions", json=body, timeout=30) as running:
        lines = running.iter_lines()
        next(lines)
        with world.without(lambda each: each.kind == "router"):
            wait_for(lambda: httpx.get(f"{gateway.url}/ready").status_code == 503)
            refused = httpx.post(f"{gateway.url}/v1/completions", json=body, timeout=30)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert "router" in refused.json()["error"]["message"]
            next(lines)
        wait_for(lambda: httpx.get(f"{gateway.url}/ready").status_code == 200)
        assert any("[DONE]" in line for line in lines)
