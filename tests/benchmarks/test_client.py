"""The load generator against a real server on a real socket, that behaves and misbehaves."""

import asyncio
from dataclasses import replace

import pytest

from benchmarks.serve.client import CompletionClient, LoadResult
from benchmarks.serve.connection import Endpoint
from benchmarks.serve.summary import failures_by_cause, summarise
from benchmarks.serve.workload import WorkloadSpec
from tests.benchmarks.scripted import Answer, Body, Reply, ScriptedServer, streamed

SPEC = WorkloadSpec(num_requests=4, output_mean=5, prompt_mean=8)


async def load(answer: Answer, spec: WorkloadSpec = SPEC, *, timeout_s: float = 10.0) -> LoadResult:
    async with ScriptedServer(answer).serving() as server:
        client = CompletionClient(server.url, model="m", timeout_s=timeout_s)
        result = await client.run(spec)
        client.close()
        return result


def errors(result: LoadResult) -> list[str]:
    return [outcome.error for outcome in result.outcomes]


async def test_latencies_are_those_that_the_server_makes() -> None:
    result = await load(streamed(first_s=0.2, gap_s=0.05))
    summary = summarise(result)
    assert summary.num_failures == 0
    for spread, scripted_s in (
        (summary.ttft_s, 0.2),
        (summary.tpot_s, 0.05),
        (summary.inter_token_s, 0.05),
        (summary.normalised_latency_s, 0.4 / 5),
    ):
        assert spread.p50 is not None
        assert 0.98 * scripted_s <= spread.p50 < 2 * scripted_s
    assert summary.output_tokens_per_s == pytest.approx(20 / result.wall_s)
    assert summary.tokens_per_event == 1


async def test_samples_of_a_request_are_drawn_and_counted_together() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.start()
        for _ in range(body["max_tokens"]):
            await asyncio.sleep(0.05)
            for _ in range(body["n"]):
                await reply.token()
        await reply.usage(body["max_tokens"] * body["n"])
        await reply.finish()

    async with ScriptedServer(answer=answer).serving() as server:
        client = CompletionClient(server.url, model="m")
        result = await client.run(replace(SPEC, num_requests=1, n=3))
        client.close()
    (outcome,) = result.outcomes
    assert (outcome.error, outcome.num_tokens) == ("", 15)
    assert server.bodies[0]["temperature"] == 1
    assert outcome.tpot_s is not None
    assert 0.045 < outcome.tpot_s < 0.1
    assert outcome.normalised_latency_s == pytest.approx(outcome.latency_s / 5)


async def test_request_asks_for_a_greedy_stream_of_exact_length() -> None:
    async with ScriptedServer().serving() as server:
        client = CompletionClient(server.url, model="m")
        result = await client.run(SPEC)
        client.close()
    assert server.bodies[0] == {
        "model": "m",
        "prompt": list(result.outcomes[0].request.prompt_token_ids),
        "max_tokens": 5,
        "n": 1,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_requests_leave_at_their_arrival_times() -> None:
    result = await load(streamed(first_s=0.3), WorkloadSpec(num_requests=6, rate_per_s=20, output_mean=1))
    assert all(-0.001 <= outcome.lag_s < 0.1 for outcome in result.outcomes)
    assert result.outcomes[-1].sent_s > 0.05


async def test_sockets_are_used_again() -> None:
    async with ScriptedServer().serving() as server:
        client = CompletionClient(server.url, model="m")
        for _ in range(3):
            await client.run(SPEC)
        client.close()
        assert server.num_connections == SPEC.num_requests


async def test_an_idle_socket_that_the_server_closed_is_replaced() -> None:
    async with ScriptedServer(streamed()).serving() as server:

        async def answer_and_close(body: Body, reply: Reply) -> None:
            await streamed()(body, reply)
            reply.hang_up()

        server.answer = answer_and_close
        client = CompletionClient(server.url, model="m")
        results = [await client.run(SPEC) for _ in range(3)]
        client.close()
    assert [summarise(result).num_failures for result in results] == [0, 0, 0]


async def test_an_error_status_is_a_failure_with_the_servers_message() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.document("429 Too Many Requests", {"error": {"message": "the queue is full"}})

    result = await load(answer)
    assert failures_by_cause(result.outcomes) == {"HTTP 429: the queue is full": 4}
    assert summarise(result).ttft_s.p50 is None


async def test_an_error_in_the_stream_is_a_failure() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.start()
        await reply.token()
        await reply.event({"error": {"message": "out of memory"}})
        await reply.finish()

    assert errors(await load(answer)) == ["out of memory"] * 4


async def test_a_hang_up_in_the_middle_is_a_failure_and_does_not_hang() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.start()
        await reply.token()
        reply.hang_up()

    result = await load(answer)
    assert all("hung up" in error for error in errors(result))
    assert summarise(result).num_failures == 4


async def test_a_silent_server_is_a_failure_after_the_timeout() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.start()
        await reply.token()
        await asyncio.sleep(30)

    result = await load(answer, timeout_s=0.3)
    assert errors(result) == ["no complete answer within 0.3 s"] * 4


async def test_an_answer_that_is_not_http_is_a_failure() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.raw(b"SSH-2.0-OpenSSH\r\n\r\n")

    assert all("cannot be read" in error for error in errors(await load(answer)))


async def test_a_refused_connection_is_a_failure() -> None:
    async with ScriptedServer().serving() as server:
        url = server.url
    client = CompletionClient(url, model="m")
    result = await client.run(SPEC)
    assert summarise(result).num_failures == 4
    assert not await client.is_ready("/health")


@pytest.mark.parametrize(
    ("num_tokens", "num_told", "message"),
    [
        (3, 3, "3 output tokens instead of 5"),
        (5, None, "the stream carried no usage"),
        (7, 5, "usage tells 5 output tokens, 7 events carried text"),
        (0, 5, "usage tells 5 output tokens, 0 events carried text"),
    ],
)
async def test_token_counts_are_checked(num_tokens: int, num_told: int | None, message: str) -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.start()
        for _ in range(num_tokens):
            await reply.token()
        if num_told is not None:
            await reply.usage(num_told)
        await reply.finish()

    assert set(errors(await load(answer))) == {message}


async def test_a_stream_without_its_end_is_a_failure() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.start()
        for _ in range(5):
            await reply.token()
        await reply.usage(5)
        await reply.raw(b"0\r\n\r\n")

    assert set(errors(await load(answer))) == {"the stream ended without [DONE]"}


async def test_an_answer_may_end_with_its_connection() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in range(5):
            await reply.raw(b'data: {"choices":[{"text":"x"}]}\n\n')
        await reply.raw(b'data: {"choices":[],"usage":{"completion_tokens":5}}\n\ndata: [DONE]\n\n')
        reply.writer.close()

    assert errors(await load(answer)) == [""] * 4


async def test_one_failure_leaves_the_others_alone() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        if len(server.bodies) == 2:
            reply.hang_up()
        else:
            await streamed(first_s=0.05)(body, reply)

    async with ScriptedServer(answer).serving() as server:
        client = CompletionClient(server.url, model="m")
        summary = summarise(await client.run(SPEC))
        client.close()
    assert (summary.num_requests, summary.num_failures) == (4, 1)


async def test_several_tokens_in_one_event_show_in_the_summary() -> None:
    async def answer(body: Body, reply: Reply) -> None:
        await reply.start()
        for _ in range(5):
            await reply.token("xy")
        await reply.usage(10)
        await reply.finish()

    result = await load(answer, WorkloadSpec(num_requests=2, output_mean=10))
    assert summarise(result).tokens_per_event == 2


@pytest.mark.parametrize("url", ["https://host:1", "host:8000", "http://"])
def test_a_url_that_is_not_plain_http_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://"):
        Endpoint.from_url(url)
