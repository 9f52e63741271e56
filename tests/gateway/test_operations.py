"""What operators ask of a gateway."""

import json
import socket
from functools import partial
from typing import Any

import httpx
import openai
import pytest

from tests.gateway.conftest import MAX_BODY_BYTES
from tests.gateway.world import MAX_MODEL_LEN, MODEL, PLAIN_MODEL, Gateway, World, wait_for


@pytest.mark.parametrize("path", ["/health", "/live"])
def test_the_process_is_up(gateway: Gateway, path: str) -> None:
    assert httpx.get(gateway.url + path).json() == {"status": "ok"}


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL, PLAIN_MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.object, model.owned_by) == ("model", "headway")
    assert model.model_dump()["max_model_len"] == MAX_MODEL_LEN


def test_readiness_tells_what_is_missing(gateway: Gateway, world: World) -> None:
    assert httpx.get(f"{gateway.url}/ready").json() == {"ready": True, "waiting_for": []}
    with world.without(lambda each: MODEL in each.models):
        wait_for(lambda: httpx.get(f"{gateway.url}/ready").status_code == 503)
        document = httpx.get(f"{gateway.url}/ready").json()
        assert document == {"ready": False, "waiting_for": [f"a worker that has '{MODEL}' loaded"]}
    wait_for(lambda: httpx.get(f"{gateway.url}/ready").status_code == 200)


def metric(gateway: Gateway, name: str, labels: str) -> float:
    """0 before it is first touched."""
    lines = httpx.get(f"{gateway.url}/metrics").text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{{labels}}}")), 0.0)


def test_latencies_and_outcomes_are_measured(gateway: Gateway, client: openai.OpenAI) -> None:
    value = partial(metric, gateway)
    label = f'model_name="{PLAIN_MODEL}"'
    before = {
        name: value(f"headway:{name}", label)
        for name in ("time_to_first_token_seconds_count", "request_generation_tokens_sum")
    }
    met = value("headway:slo_requests_total", f'{label},outcome="met"')
    missed = value("headway:slo_requests_total", f'{label},outcome="missed"')
    client.completions.create(model=PLAIN_MODEL, prompt="ab", max_tokens=5)
    impossible = {"x-headway-slo-ttft-ms": "0.0001"}
    client.completions.create(model=PLAIN_MODEL, prompt="ab", max_tokens=5, extra_headers=impossible)
    assert value("headway:time_to_first_token_seconds_count", label) == before["time_to_first_token_seconds_count"] + 2
    assert value("headway:request_generation_tokens_sum", label) == before["request_generation_tokens_sum"] + 10
    assert value("headway:slo_requests_total", f'{label},outcome="met"') == met + 1
    assert value("headway:slo_requests_total", f'{label},outcome="missed"') == missed + 1
    assert 0 < value("headway:slo_attainment_ratio", label) < 1


@pytest.mark.parametrize("stream", [False, True])
def test_inter_token_latency_is_that_of_each_sequence(
    gateway: Gateway, client: openai.OpenAI, world: World, stream: bool
) -> None:
    """Eight sequences take a step each at once: between two tokens of one lies a step, as the time per token says."""
    world.worker.step_s = 0.02
    label, num_sequences, num_tokens = f'model_name="{MODEL}"', 8, 6

    def sums_s() -> tuple[float, float]:
        gaps_s = metric(gateway, "headway:inter_token_latency_seconds_sum", label)
        return gaps_s, metric(gateway, "headway:request_time_per_output_token_seconds_sum", label)

    before = sums_s()
    answer = client.completions.create(
        model=MODEL, prompt="ab", n=num_sequences, max_tokens=num_tokens, seed=1, stream=stream
    )
    if stream:
        list(answer)
    gaps_s, tpot_s = (now - then for now, then in zip(sums_s(), before, strict=True))
    assert gaps_s > num_sequences / 2 * tpot_s * (num_tokens - 1)


@pytest.mark.parametrize(
    ("handler", "method", "path", "options", "status"),
    [
        ("/v1/completions", "POST", "/v1/completions", {"json": {"model": MODEL, "prompt": "ab"}}, 200),
        ("/v1/completions", "POST", "/v1/completions", {"json": {"model": MODEL}}, 400),
        ("/v1/completions", "POST", "/v1/completions", {"content": b"x" * (MAX_BODY_BYTES + 1)}, 413),
        ("/v1/chat/completions", "POST", "/v1/chat/completions", {"json": {"model": "other", "messages": []}}, 404),
        ("/v1/models", "GET", "/v1/models", {}, 200),
        ("/v1/models", "GET", "/v1/models", {"headers": {"x-request-id": "a b"}}, 400),
        ("/v1/models/{name:path}", "GET", "/v1/models/other", {}, 404),
        ("/v1/completions", "GET", "/v1/completions", {}, 405),
        ("none", "POST", "/v1/images", {"json": {}}, 404),
    ],
)
def test_every_answer_is_counted(
    gateway: Gateway, handler: str, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    labels = f'handler="{handler}",method="{method}",status="{status}"'
    before = metric(gateway, "headway:http_requests_total", labels)
    assert httpx.request(method, gateway.url + path, **options).status_code == status
    assert metric(gateway, "headway:http_requests_total", labels) == before + 1


def test_who_has_no_key_and_what_is_no_http_is_counted(guarded: Gateway) -> None:
    refused = 'handler="/v1/completions",method="POST",status="401"'
    broken = 'handler="none",method="none",status="400"'
    before = [metric(guarded, "headway:http_requests_total", labels) for labels in (refused, broken)]
    assert httpx.post(f"{guarded.url}/v1/completions", json={}).status_code == 401
    host, port = guarded.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"no such thing\r\n\r\n")
        assert connection.recv(1024).startswith(b"HTTP/1.1 400")
    after = [metric(guarded, "headway:http_requests_total", labels) for labels in (refused, broken)]
    assert after == [count + 1 for count in before]


def test_the_api_is_documented(gateway: Gateway) -> None:
    document = httpx.get(f"{gateway.url}/openapi.json")
    paths = document.json()["paths"]
    for path, field in (("/v1/chat/completions", "messages"), ("/v1/responses", "input")):
        schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert field in schema["required"]
        assert "#/components" not in json.dumps(schema), "it refers to nothing elsewhere"
    assert "version" in httpx.get(f"{gateway.url}/version").json()


def test_log_lines_carry_the_request_id(gateway: Gateway, world: World) -> None:
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 400, "stream": True}
    world.worker.step_s = 0.02
    headers = {"x-request-id": "seen-in-logs"}
    with httpx.stream("POST", f"{gateway.url}/v1/completions", json=body, headers=headers) as response:
        next(response.iter_lines())

    def lines() -> list[str]:
        documents = [json.loads(line) for line in gateway.log.read_text().splitlines() if line.startswith("{")]
        return [line["message"] for line in documents if line.get("request_id") == "seen-in-logs"]

    wait_for(lambda: "the client left" in lines())


def test_nothing_but_json_lines_is_logged(gateway: Gateway, client: openai.OpenAI, world: World) -> None:
    """Broken links leave no tasks behind that the event loop would complain of."""
    world.router.workers = {"worker-9": "127.0.0.1:1", "worker-0": world.worker_endpoint}
    for _ in range(3):
        client.completions.create(model=MODEL, prompt="ab", max_tokens=2)
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    assert [line for line in lines if line["level"] == "error"] == []
