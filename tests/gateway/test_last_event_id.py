"""Streams that clients take up again, at the gateway that they were at or at another one after it was killed."""

import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from headway.store.schema import ANSWER
from headway.v1 import router_pb2
from tests.gateway.world import MODEL, Gateway, World, wait_for

ASKS = {"x-headway-resumable": "1"}
COMPLETION = "/v1/completions", {"model": MODEL, "prompt": "abcd", "max_tokens": 40, "temperature": 0, "stream": True}
CHAT = (
    "/v1/chat/completions",
    {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 30,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "logprobs": True,
        "top_logprobs": 3,
    },
)
STOPPED = "/v1/completions", COMPLETION[1] | {"stop": ["cdab"], "prompt": "abcd", "max_tokens": 12, "min_tokens": 8}

Event = tuple[str, str]


def events_of(response: httpx.Response) -> Iterator[Event]:
    """Id and data of each."""
    assert response.status_code == 200, response.read()
    event_id = ""
    for line in response.iter_lines():
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield event_id, line.removeprefix("data: ")


def asking(gateway: Gateway, call: tuple[str, dict[str, Any]], headers: dict[str, str]) -> Any:
    path, body = call
    return httpx.stream("POST", gateway.url + path, json=body, headers=headers, timeout=60)


def whole(gateway: Gateway, call: tuple[str, dict[str, Any]], headers: dict[str, str] = ASKS) -> list[Event]:
    with asking(gateway, call, headers) as response:
        return list(events_of(response))


def begun(gateway: Gateway, call: tuple[str, dict[str, Any]], number: int) -> list[Event]:
    """The first events, before the client leaves."""
    with asking(gateway, call, ASKS) as response:
        return list(islice(events_of(response), number))


def texts(events: list[Event]) -> list[str]:
    """What events say, without what differs from one answer to the next."""
    answers = {event_id.rpartition(":")[0] for event_id, _ in events}
    assert len(answers) == 1
    stamp = ""
    found = []
    for _, data in events:
        if data != "[DONE]":
            stamp = stamp or data[data.index('"created":') :].split(",", 1)[0]
            assert stamp in data
        found.append(data.replace(answers.copy().pop(), "ANSWER").replace(stamp or " ", "CREATED"))
    return found


def test_ids_count_the_events_and_other_streams_have_none(gateway: Gateway) -> None:
    numbers = [int(event_id.rpartition(":")[2]) for event_id, _ in whole(gateway, CHAT)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {event_id for event_id, _ in whole(gateway, CHAT, {})} == {""}


@pytest.mark.parametrize("call", [COMPLETION, CHAT, STOPPED])
def test_a_stream_goes_on_at_another_gateway_after_its_own_was_killed(
    gateway: Gateway, world: World, call: tuple[str, dict[str, Any]]
) -> None:
    expected = texts(whole(gateway, call))
    world.worker.step_s = 0.05
    with world.gateway() as other, asking(other, call, ASKS) as response:
        events = events_of(response)
        had = list(islice(events, 5))
        other.process.send_signal(signal.SIGKILL)
        with pytest.raises(httpx.HTTPError):
            had += events  # what had been sent
    _forget_leases(world)
    had += whole(gateway, call, {"Last-Event-ID": had[-1][0]})
    assert texts(had) == expected


def _forget_leases(world: World) -> None:
    """As a router does with those of a gateway that is gone."""
    released = {each.lease_id for each in world.router.released}
    gone = [lease_id for lease_id in world.router.leased if lease_id not in released]
    world.router.released += [router_pb2.Release(lease_id=lease_id) for lease_id in gone]


@pytest.mark.parametrize("number", [1, 7, 1000])
def test_a_stream_goes_on_where_its_client_was(gateway: Gateway, world: World, number: int) -> None:
    """Also after all of it was sent, and more than once."""
    expected = texts(whole(gateway, CHAT))
    had = begun(gateway, CHAT, number)
    more = begun_again = whole(gateway, CHAT, {"Last-Event-ID": had[-1][0]})
    if number < len(expected):
        begun_again = whole(gateway, CHAT, {"Last-Event-ID": more[2][0]})
        assert more[3:] == begun_again
    assert texts(had + more) == expected
    wait_for(lambda: world.router.num_open == 0)


def test_who_takes_a_stream_up_ends_it_elsewhere(gateway: Gateway, world: World) -> None:
    world.worker.step_s = 0.02
    with asking(gateway, COMPLETION, ASKS) as response:
        events = events_of(response)
        had = list(islice(events, 3))
        rest = whole(gateway, COMPLETION, {"Last-Event-ID": had[-1][0]})
        late = list(events)
    assert "goes on at another connection" in late[-1][1]
    assert texts(had + rest) == texts(whole(gateway, COMPLETION))


def test_a_stream_is_taken_up_with_the_same_request_only(gateway: Gateway, world: World) -> None:
    had = begun(gateway, COMPLETION, 2)
    path, body = COMPLETION
    last = {"Last-Event-ID": had[-1][0]}
    other = httpx.post(gateway.url + path, json=body | {"max_tokens": 41}, headers=last)
    assert (other.status_code, other.json()["error"]["param"]) == (400, "last-event-id")
    assert "another request" in other.json()["error"]["message"]
    unknown = httpx.post(gateway.url + path, json=body, headers={"Last-Event-ID": "nobody:3"})
    assert unknown.status_code == 404
    assert "not kept" in unknown.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "change", "field"),
    [
        ({"x-headway-resumable": "maybe"}, {}, "x-headway-resumable"),
        ({"Last-Event-ID": "7"}, {}, "last-event-id"),
        ({"Last-Event-ID": "answer:-1"}, {}, "last-event-id"),
        (ASKS, {"stream": False}, "stream"),
        (ASKS, {"prompt": ["ab", "cd"]}, "x-headway-resumable"),
        (ASKS, {"beam_width": 2}, "x-headway-resumable"),
    ],
)
def test_what_cannot_be_taken_up_is_refused(
    gateway: Gateway, headers: dict[str, str], change: dict[str, Any], field: str
) -> None:
    path, body = COMPLETION
    answer = httpx.post(gateway.url + path, json=body | change, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_a_journal_that_is_lost_ends_the_ids_and_not_the_stream(gateway: Gateway, world: World) -> None:
    expected = texts(whole(gateway, COMPLETION))
    world.worker.step_s = 0.02
    with asking(gateway, COMPLETION, ASKS) as response:
        events = events_of(response)
        had = list(islice(events, 3))
        answer_id = had[-1][0].rpartition(":")[0]
        with redis.from_url(world.redis_url) as database:
            assert database.delete(ANSWER.key(world.namespace, answer_id)) == 1
        had += events
    assert texts(had) == expected
    assert had[-1][0] == had[-2][0]


def test_another_tenant_finds_nothing_and_does_not_disturb(gateway: Gateway, world: World, tmp_path: Path) -> None:
    expected = texts(whole(gateway, COMPLETION))
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("tenants:\n  one: {}\n  two: {}\n")
    world.worker.step_s = 0.02
    with world.gateway("--tenants", str(tenants)) as other:
        one, two = ({"x-headway-tenant": name} for name in ("one", "two"))
        with asking(other, COMPLETION, ASKS | one) as response:
            events = events_of(response)
            had = list(islice(events, 2))
            path, body = COMPLETION
            answer = httpx.post(other.url + path, json=body, headers={"Last-Event-ID": had[-1][0]} | two)
            assert answer.status_code == 404
            assert texts([*had, *events]) == expected
