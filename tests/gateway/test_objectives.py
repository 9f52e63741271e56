"""Objectives and priorities on their way from a client to the router."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import openai
import pytest

from tests.gateway.world import MODEL, World, wait_for

if TYPE_CHECKING:
    from tests.gateway.conftest import Gateway


def test_an_objective_for_the_whole_answer_and_a_priority_reach_the_router(client: openai.OpenAI, world: World) -> None:
    extra = {"slo_ms": 1500, "priority": -3}
    client.completions.create(
        model=MODEL, prompt="ab", max_tokens=2, extra_body=extra, extra_headers={"x-headway-slo-ttft-ms": "700"}
    )
    asked = world.router.routed[-1]
    assert (asked.slo.e2e_s, asked.slo.ttft_s, asked.priority) == (1.5, 0.7, -3)


def test_the_worker_hears_the_priority_and_what_is_left_of_the_slack(client: openai.OpenAI, world: World) -> None:
    client.completions.create(model=MODEL, prompt="ab", max_tokens=2, extra_body={"priority": -3})
    assert world.worker.submitted[-1].priority == -3
    assert not world.worker.submitted[-1].HasField("slack_s")
    world.router.slack_s = 0.4
    client.completions.create(model=MODEL, prompt="ab", max_tokens=2, extra_body={"slo_ms": 1500})
    assert 0.2 < world.worker.submitted[-1].slack_s <= 0.4


def test_the_router_hears_of_a_first_token_while_the_answer_goes_on(client: openai.OpenAI, world: World) -> None:
    """Once, and of requests with objectives only: others are promised nothing."""
    client.completions.create(model=MODEL, prompt="ab", max_tokens=8)
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 64, "extra_body": {"slo_ms": 60_000}}
    world.worker.step_s = 0.02
    stream = client.completions.create(stream=True, **body)
    next(iter(stream))
    wait_for(lambda: bool(world.router.first_tokens))
    assert world.router.first_tokens[0].lease_id not in {release.lease_id for release in world.router.released}
    stream.close()
    wait_for(lambda: world.router.num_open == 0)
    assert [told.lease_id for told in world.router.first_tokens] == world.router.leased[1:]
    assert world.router.first_tokens[0].ttft_s == world.router.released[-1].ttft_s > 0


@pytest.mark.parametrize(
    ("field", "value"), [("slo_ms", 0), ("slo_ms", -1), ("slo_ms", "soon"), ("priority", 0.5), ("priority", 2**40)]
)
def test_a_bad_objective_is_named(gateway: Gateway, field: str, value: object) -> None:
    body = {"model": MODEL, "prompt": "ab", field: value}
    response = httpx.post(f"{gateway.url}/v1/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field


def test_an_unknown_tenant_is_refused(gateway: Gateway) -> None:
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 1}
    response = httpx.post(f"{gateway.url}/v1/completions", json=body, headers={"x-headway-tenant": "nobody"})
    assert response.status_code == 400
    assert "nobody" in response.json()["error"]["message"]
