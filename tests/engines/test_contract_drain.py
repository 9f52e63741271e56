"""The last of the contract, with an engine of its own: afterwards the worker takes nothing more."""

import asyncio

import pytest

from headway.v1 import worker_pb2
from tests.engines.worker import Answer, EngineWorker, sequence, take

pytestmark = pytest.mark.asyncio(loop_scope="module")

GREEDY = {"temperature": 0.0}


async def test_a_drain_loses_no_token_and_lets_nobody_in(engine: EngineWorker) -> None:
    asked = sequence(max_tokens=100, **GREEDY)
    answers = {asked.request_id: Answer()}
    async with engine.stream(asked) as call, asyncio.timeout(60):
        await call.done_writing()
        drains = []
        async for message in call:
            take(message, answers)
            if not drains:
                drains.append(asyncio.ensure_future(engine.stub.Drain(worker_pb2.DrainRequest(deadline_s=30))))
        drained = await drains[0]
    assert (drained.num_cancelled, drained.num_moved) == (0, 0)
    assert len(answers[asked.request_id].tokens) == 100
    (late,) = await engine.generate(sequence(**GREEDY))
    assert late.error is not None
    assert late.error.code == "unavailable"
