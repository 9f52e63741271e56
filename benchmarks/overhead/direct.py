"""Sends requests straight to a worker's gRPC endpoint, past gateway and router."""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

import grpc

from benchmarks.serve.outcome import Outcome
from benchmarks.serve.schedule import Read, Send
from benchmarks.serve.workload import Request
from headway.core.request import GenerationRequest, SamplingParams
from headway.rpc.convert import request_to_pb
from headway.v1 import worker_pb2, worker_pb2_grpc

Call = grpc.aio.StreamStreamCall[worker_pb2.GenerateTokensRequest, worker_pb2.GenerateTokensResponse]


@dataclass(slots=True)
class Generation:
    """One sequence on its way: when its tokens came (of `time.perf_counter`), how many, and what went wrong."""

    ended: asyncio.Future[None]
    times_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    error: str = ""

    def take(self, output: worker_pb2.SequenceOutput, now_s: float) -> None:
        if output.token_ids:
            self.times_s.append(now_s)
            self.num_tokens += len(output.token_ids)
        if output.finish_reason and not self.ended.done():
            self.error = output.error.message
            self.ended.set_result(None)


class DirectClient:
    """Sends sequences to one worker over one stream, as the gateway does. Use as an async context manager."""

    def __init__(self, endpoint: str, *, model: str, token: str | None = None) -> None:
        self.model = model
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = grpc.aio.insecure_channel(endpoint)
        self._generations: dict[str, Generation] = {}
        self._writing = asyncio.Lock()
        self._num_prepared = 0

    async def __aenter__(self) -> Self:
        self._call: Call = worker_pb2_grpc.WorkerServiceStub(self._channel).GenerateTokens(metadata=self._metadata)
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()
        await asyncio.wait([self._reader])
        await self._channel.close()

    def prepare(self, request: Request) -> Send:
        """Build the message now, so that no clock sees it being built."""
        self._num_prepared += 1
        submit = request_to_pb(
            GenerationRequest(
                request_id=f"direct-{self._num_prepared}",
                model=self.model,
                prompt_token_ids=request.prompt_token_ids,
                sampling=SamplingParams(max_tokens=request.num_output_tokens, temperature=0.0, ignore_eos=True),
            )
        )
        return partial(self._send, request, worker_pb2.GenerateTokensRequest(submit=submit))

    async def _send(self, request: Request, message: worker_pb2.GenerateTokensRequest, start_s: float) -> Read:
        generation = Generation(asyncio.get_running_loop().create_future())
        self._generations[message.submit.request_id] = generation
        sent_s = time.perf_counter()
        async with self._writing:
            await self._call.write(message)
        await generation.ended
        del self._generations[message.submit.request_id]
        outcome = Outcome(
            request=request,
            sent_s=sent_s - start_s,
            finished_s=time.perf_counter() - start_s,
            token_times_s=tuple(time_s - start_s for time_s in generation.times_s),
            num_tokens=generation.num_tokens,
            error=generation.error,
        )
        return lambda: outcome

    async def _read(self) -> None:
        """Hand out what each step brought; when the stream breaks, nobody waits for it any more."""
        try:
            async for response in self._call:
                now_s = time.perf_counter()
                for output in response.outputs:
                    self._generations[output.request_id].take(output, now_s)
        except grpc.aio.AioRpcError as error:
            for generation in self._generations.values():
                if not generation.ended.done():
                    generation.error = f"the worker's stream broke: {error.details()}"
                    generation.ended.set_result(None)
