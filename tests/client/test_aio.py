"""The asyncio client against a real gRPC server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from headway.client import AsyncClient, FinishReason
from headway.core.errors import DeadlineExceededError, NotFoundError, ResourceExhaustedError, UnavailableError
from tests.client.scripted import WORDS, ScriptedService


@pytest.fixture
async def client(endpoint: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(endpoint) as client:
        yield client


async def test_generate_yields_every_piece_in_order(client: AsyncClient) -> None:
    chunks = [chunk async for chunk in client.generate("Tell")]
    assert [chunk.text for chunk in chunks[:-1]] == list(WORDS)
    assert chunks[-2].finish_reason is FinishReason.STOP
    assert chunks[-1].usage is not None


async def test_many_answers_share_one_connection(client: AsyncClient) -> None:
    texts = await asyncio.gather(*(client.generate_text("Tell") for _ in range(50)))
    assert set(texts) == {"".join(WORDS)}


async def test_closing_the_iterator_cancels_the_request(client: AsyncClient, service: ScriptedService) -> None:
    async with aclosing(client.generate("endless")) as chunks:
        async for _ in chunks:
            break
    assert await asyncio.to_thread(service.cancelled.wait, 2)


async def test_leaving_the_loop_cancels_the_request(client: AsyncClient, service: ScriptedService) -> None:
    async for _ in client.generate("endless"):
        break
    assert await asyncio.to_thread(service.cancelled.wait, 2)


async def test_cancelling_the_task_cancels_the_request(client: AsyncClient, service: ScriptedService) -> None:
    task = asyncio.create_task(client.generate_text("endless"))
    assert await asyncio.to_thread(service.started.wait, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(service.cancelled.wait, 2)


async def test_the_servers_error_arrives_whole(client: AsyncClient) -> None:
    with pytest.raises(NotFoundError) as unknown:
        await client.generate_text("Tell", model="huge")
    assert unknown.value.field == "model"
    with pytest.raises(ResourceExhaustedError) as full:
        await client.generate_text("full")
    assert full.value.retry_after_s == 1.5
    with pytest.raises(DeadlineExceededError):
        await client.generate_text("endless", timeout_s=0.2)


async def test_models_and_status_come_typed(client: AsyncClient) -> None:
    assert [model.name for model in await client.models()] == ["tiny"]
    assert (await client.status()).controller.plan_id == "plan-1"


async def test_nobody_there_is_unavailable() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(UnavailableError):
            await client.models()
