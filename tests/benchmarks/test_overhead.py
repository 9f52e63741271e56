"""The overhead of a front door, against a front door and a worker whose delays are known."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import pytest

from benchmarks.overhead.comparison import alternate, overhead
from benchmarks.overhead.direct import DirectClient
from benchmarks.serve.client import CompletionClient
from benchmarks.serve.workload import Request, WorkloadSpec
from headway.v1 import common_pb2, worker_pb2, worker_pb2_grpc
from tests.benchmarks.scripted import ScriptedServer, streamed

SPEC = WorkloadSpec(num_requests=40, rate_per_s=100, prompt_mean=8, prompt_sigma=0, output_mean=3)
REQUEST = Request(0.0, (11, 12, 13), 3)


@dataclass(slots=True)
class ScriptedWorker(worker_pb2_grpc.WorkerServiceServicer):
    """Answers each sequence with its tokens after `first_s`; breaks the stream at a prompt that starts with 0."""

    first_s: float

    async def GenerateTokens(self, request_iterator, context):  # type: ignore[no-untyped-def] # noqa: N802
        outputs: asyncio.Queue[worker_pb2.SequenceOutput] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:

            async def answer(submit: worker_pb2.SubmitSequence) -> None:
                await asyncio.sleep(self.first_s)
                for index in range(submit.sampling.max_tokens):
                    is_last = index + 1 == submit.sampling.max_tokens
                    reason = common_pb2.FINISH_REASON_LENGTH if is_last else common_pb2.FINISH_REASON_UNSPECIFIED
                    await outputs.put(
                        worker_pb2.SequenceOutput(request_id=submit.request_id, token_ids=[7], finish_reason=reason)
                    )

            async def read() -> None:
                async for request in request_iterator:
                    if request.submit.prompt_token_ids[0] == 0:
                        await context.abort(grpc.StatusCode.UNAVAILABLE, "the worker is going down")
                    tasks.create_task(answer(request.submit))

            tasks.create_task(read())
            while True:
                yield worker_pb2.GenerateTokensResponse(outputs=[await outputs.get()])


@asynccontextmanager
async def scripted_worker(*, first_s: float) -> AsyncIterator[str]:
    server = grpc.aio.server()
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(ScriptedWorker(first_s), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(grace=None)


async def test_overhead_is_the_difference_of_the_two_ways() -> None:
    async with (
        ScriptedServer(streamed(first_s=0.15)).serving() as front_door,
        scripted_worker(first_s=0.05) as endpoint,
        DirectClient(endpoint, model="m") as direct,
    ):
        client = CompletionClient(front_door.url, model="m")
        result = overhead(*await alternate(SPEC, through=client.prepare, direct=direct.prepare))
        client.close()
    assert result.num_failures == 0
    assert len(result.through_s) == len(result.direct_s) == 20
    assert result.added_p50.value_s == pytest.approx(0.1, abs=0.03)
    assert result.added_p50.low_s <= result.added_p50.value_s <= result.added_p50.high_s


async def test_direct_request_asks_for_the_same_tokens_and_times_them() -> None:
    async with scripted_worker(first_s=0.1) as endpoint, DirectClient(endpoint, model="m") as direct:
        outcome = (await direct.prepare(REQUEST)(0.0))()
    assert (outcome.error, outcome.num_tokens, len(outcome.token_times_s)) == ("", 3, 3)
    assert outcome.ttft_s == pytest.approx(0.1, abs=0.05)


async def test_a_worker_that_goes_away_is_a_failure_and_does_not_hang() -> None:
    async with scripted_worker(first_s=30) as endpoint, DirectClient(endpoint, model="m") as direct:
        waiting = asyncio.create_task(direct.prepare(REQUEST)(0.0))
        await asyncio.sleep(0.1)
        broken = (await direct.prepare(Request(0.0, (0,), 3))(0.0))()
        outcome = (await asyncio.wait_for(waiting, 5))()
    assert "stream broke" in outcome.error
    assert "stream broke" in broken.error
    with pytest.raises(ValueError, match="no request was answered"):
        overhead([outcome], [broken])
