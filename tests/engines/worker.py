"""A worker with an engine, as the contract's tests see it: what it says over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import grpc

from headway.core.adapter import Adapter
from headway.core.engine_kind import EngineKind
from headway.rpc.convert import to_pb
from headway.v1 import common_pb2, worker_pb2, worker_pb2_grpc

NUM_BLOCKS, BLOCK_SIZE, MAX_LEN = 32, 32, 512
PROMPT = tuple(7 + index * 11 % 400 for index in range(70))
_NUMBERS = count()


@dataclass
class Answer:
    """What came for one sequence."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    prompt_logprobs: list[Any] = field(default_factory=list)
    finish_reason: int = 0
    stop_token_id: int | None = None
    num_cached_tokens: int = 0
    error: common_pb2.ErrorDetail | None = None


@dataclass
class EngineWorker:
    """A worker that has loaded the model 'tiny' on an engine."""

    kind: EngineKind
    stub: "worker_pb2_grpc.WorkerServiceAsyncStub"

    async def generate(self, *sequences: worker_pb2.SubmitSequence) -> list[Answer]:
        """The answers to the sequences of one prompt, once all have ended."""
        answers = {sequence.request_id: Answer() for sequence in sequences}
        async with self.stream(*sequences) as call:
            await call.done_writing()
            async for message in call:
                take(message, answers)
        return list(answers.values())

    @asynccontextmanager
    async def stream(self, *sequences: worker_pb2.SubmitSequence) -> AsyncIterator[Any]:
        call = self.stub.GenerateTokens()
        group = worker_pb2.SubmitGroup(sequences=sequences)
        await call.write(worker_pb2.GenerateTokensRequest(submit_group=group))
        try:
            yield call
        finally:
            call.cancel()

    async def load_report(self) -> worker_pb2.WatchLoadResponse:
        async for report in self.stub.WatchLoad(worker_pb2.WatchLoadRequest(interval_ms=10)):
            return report
        raise AssertionError("the worker tells no load")

    async def until_idle(self) -> worker_pb2.WatchLoadResponse:
        """The first report by which nothing runs and all blocks are to be had."""
        async with asyncio.timeout(60):
            async for report in self.stub.WatchLoad(worker_pb2.WatchLoadRequest(interval_ms=10)):
                if report.num_running == report.num_waiting == 0 and report.num_free_blocks == report.num_blocks:
                    return report
        raise AssertionError("the worker's load reports ended")


def sequence(
    prompt: tuple[int, ...] = PROMPT,
    *,
    outputs: tuple[int, ...] = (),
    salt: str = "",
    adapter: Adapter | None = None,
    **sampling: Any,
) -> worker_pb2.SubmitSequence:
    fields = {"max_tokens": 24, "top_p": 1.0, "repetition_penalty": 1.0, "ignore_eos": True}
    return worker_pb2.SubmitSequence(
        request_id=f"request-{next(_NUMBERS)}",
        model="tiny",
        prompt_token_ids=prompt,
        output_token_ids=outputs,
        sampling=common_pb2.SamplingParams(**fields | sampling),
        cache_salt=salt,
        adapter=None if adapter is None else to_pb(adapter, common_pb2.Adapter),
    )


def take(message: worker_pb2.GenerateTokensResponse, answers: dict[str, Answer]) -> None:
    for output in message.outputs:
        answer = answers[output.request_id]
        answer.tokens += output.token_ids
        answer.logprobs += output.logprobs
        answer.prompt_logprobs += output.prompt_logprobs
        answer.num_cached_tokens = max(answer.num_cached_tokens, output.num_cached_tokens)
        answer.finish_reason = output.finish_reason
        answer.stop_token_id = output.stop_token_id if output.HasField("stop_token_id") else None
        answer.error = output.error if output.HasField("error") else None


async def load(stub: "worker_pb2_grpc.WorkerServiceAsyncStub", directory: Path, **fields: Any) -> None:
    order: dict[str, Any] = {
        "plan_id": "plan",
        "model": "tiny",
        "directory": str(directory),
        "dtype": "float32",
        "num_blocks": NUM_BLOCKS,
        "block_size": BLOCK_SIZE,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 128,
        "max_model_len": MAX_LEN,
        "enable_prefix_cache": True,
    }
    messages = [message async for message in stub.LoadModel(worker_pb2.LoadModelRequest(**order | fields))]
    assert messages[-1].done


def stub_at(channel: grpc.aio.Channel) -> "worker_pb2_grpc.WorkerServiceAsyncStub":
    return worker_pb2_grpc.WorkerServiceStub(channel)  # type: ignore[return-value]
