"""A real gRPC worker without a model: it repeats the prompt, one token per sequence and step.

Token k of the output is token (k + shift) of the prompt, from the front again at its end; shift is 0 when sampling is
greedy and the seed otherwise. A token's log probability is -0.5, and of a sample less by a tenth of its seed. The
hypothesis of rank r is the output of shift r, as long as it may be. Run as a program, on a port, it may be
killed; it dies when it comes to say `DEADLY_ID`.
"""

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from headway.core.errors import HeadwayError, UnavailableError
from headway.rpc.host import SERVER_OPTIONS
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.status import error_to_pb
from headway.v1 import common_pb2, worker_pb2, worker_pb2_grpc

EOS_ID = 1
VOCAB_SIZE = 400
DEADLY_ID = 399


@dataclass
class _Sequence:
    submit: worker_pb2.SubmitSequence
    reply: tuple[int, ...] = ()
    num_tokens: int = field(init=False)
    is_first: bool = True

    def __post_init__(self) -> None:
        self.num_tokens = len(self.submit.output_token_ids)

    def next_output(self) -> worker_pb2.SequenceOutput:
        sampling, prompt = self.submit.sampling, self.submit.prompt_token_ids
        if sampling.HasField("beam"):
            return self._next_of_search()
        shift = sampling.seed if sampling.temperature > 0 else 0
        token_id = self._token(shift)
        if token_id == DEADLY_ID and __name__ == "__main__":
            os._exit(1)
        self.num_tokens += 1
        output = worker_pb2.SequenceOutput(request_id=self.submit.request_id, token_ids=[token_id])
        if sampling.HasField("num_logprobs"):
            output.logprobs.append(logprobs(token_id, num_top=sampling.num_logprobs, logprob=-0.5 - shift / 10))
        if self.is_first:
            output.num_cached_tokens = len(prompt) // 2
            if sampling.HasField("num_prompt_logprobs"):
                output.prompt_logprobs.extend(
                    logprobs(prompt_id, num_top=sampling.num_prompt_logprobs) for prompt_id in prompt[1:]
                )
        self.is_first = False
        is_eos = token_id == EOS_ID and not sampling.ignore_eos
        if self.num_tokens > sampling.min_tokens and (is_eos or token_id in sampling.stop_token_ids):
            output.finish_reason = common_pb2.FINISH_REASON_STOP
            output.stop_token_id = token_id
        elif self.num_tokens >= sampling.max_tokens:
            output.finish_reason = common_pb2.FINISH_REASON_LENGTH
        return output

    def _token(self, shift: int) -> int:
        if self.reply:
            return (*self.reply, EOS_ID)[self.num_tokens]
        prompt = self.submit.prompt_token_ids
        return prompt[(self.num_tokens + shift) % len(prompt)]

    def _next_of_search(self) -> worker_pb2.SequenceOutput:
        """Nothing, until everything at once."""
        sampling, prompt = self.submit.sampling, self.submit.prompt_token_ids
        self.num_tokens += 1
        output = worker_pb2.SequenceOutput(request_id=self.submit.request_id)
        if self.num_tokens >= sampling.max_tokens:
            output.finish_reason = common_pb2.FINISH_REASON_LENGTH
            output.num_cached_tokens = len(prompt) // 2
            for rank in range(sampling.beam.num_hypotheses):
                token_ids = [prompt[(k + rank) % len(prompt)] for k in range(sampling.max_tokens)]
                output.hypotheses.add(token_ids=token_ids, score=-rank, finish_reason=output.finish_reason)
        return output


def logprobs(token_id: int, *, num_top: int, logprob: float = -0.5) -> common_pb2.TokenLogprobs:
    top = [(token_id + i) % VOCAB_SIZE for i in range(num_top)]
    return common_pb2.TokenLogprobs(
        token_id=token_id,
        logprob=logprob,
        rank=1,
        top_token_ids=top,
        top_logprobs=[-0.5 - i for i in range(num_top)],
    )


@dataclass
class ScriptedWorker(worker_pb2_grpc.WorkerServiceServicer):
    """Attributes that begin with `fail_` make it misbehave.

    Attributes:
        step_s: time of a step.
        submitted, cancelled: what was asked of it, in order.
        groups: request ids of the sequences that were submitted together.
        submit_groups: what they came in.
        num_steps: steps with a sequence in them.
        reply: tokens to say in place of the prompt, and then the end.
        fail_submit: refuses sequences.
        fail_at: error of sequences that have so many tokens.
        move_at: worker to which sequences go on that have so many tokens.
        leaves: ends its streams as soon as something is submitted, as a worker does that ends in good order.
    """

    step_s: float = 0.001
    submitted: list[worker_pb2.SubmitSequence] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    num_cancel_messages: int = 0
    groups: list[list[str]] = field(default_factory=list)
    submit_groups: list[worker_pb2.SubmitGroup] = field(default_factory=list)
    num_steps: int = 0
    num_streams: int = 0
    reply: tuple[int, ...] = ()
    fail_submit: HeadwayError | None = None
    fail_at: tuple[int, HeadwayError] | None = None
    move_at: tuple[int, str] | None = None
    leaves: bool = False

    @property
    def last(self) -> worker_pb2.SubmitSequence:
        return self.submitted[-1]

    async def GenerateTokens(  # noqa: N802 - the method's name in the protocol
        self, request_iterator: AsyncIterator[worker_pb2.GenerateTokensRequest], context: Any
    ) -> AsyncIterator[worker_pb2.GenerateTokensResponse]:
        self.num_streams += 1
        running: dict[str, _Sequence] = {}
        refused: list[worker_pb2.SequenceOutput] = []
        reader = asyncio.create_task(self._read(request_iterator, running, refused))
        try:
            while not reader.done():
                if running and self.leaves:
                    raise UnavailableError("The worker is going away.")
                if running or refused:
                    outputs = [*refused, *self._step(running)]
                    refused.clear()
                    yield worker_pb2.GenerateTokensResponse(outputs=outputs)
                await asyncio.sleep(self.step_s)
        finally:
            reader.cancel()
            self.cancelled += running

    async def InferSequences(  # noqa: N802 - as above
        self, request: worker_pb2.InferSequencesRequest, context: Any
    ) -> worker_pb2.InferSequencesResponse:
        """The vector of a sequence is its first token."""
        await asyncio.sleep(self.step_s)
        if __name__ == "__main__" and any(DEADLY_ID in sequence.token_ids for sequence in request.sequences):
            os._exit(1)
        vectors = [struct.pack("<f", sequence.token_ids[0]) for sequence in request.sequences]
        return worker_pb2.InferSequencesResponse(vectors=vectors)

    def _step(self, running: dict[str, _Sequence]) -> list[worker_pb2.SequenceOutput]:
        self.num_steps += 1
        outputs = []
        for request_id, sequence in list(running.items()):
            if self.fail_at is not None and sequence.num_tokens == self.fail_at[0]:
                output = failure(request_id, self.fail_at[1])
            elif self.move_at is not None and sequence.num_tokens == self.move_at[0]:
                output = failure(request_id, UnavailableError("The request has moved."))
                output.moved_to_worker_id = self.move_at[1]
            else:
                output = sequence.next_output()
            if output.finish_reason:
                del running[request_id]
            if output.finish_reason or output.token_ids:
                outputs.append(output)
        return outputs

    async def _read(
        self,
        requests: AsyncIterator[worker_pb2.GenerateTokensRequest],
        running: dict[str, _Sequence],
        refused: list[worker_pb2.SequenceOutput],
    ) -> None:
        async for request in requests:
            if request.WhichOneof("action") == "cancel":
                self.num_cancel_messages += 1
                for request_id in request.cancel.request_ids:
                    self.cancelled.append(request_id)
                    running.pop(request_id, None)
                continue
            self.submit_groups.append(request.submit_group)
            group = request.submit_group.sequences
            self.groups.append([submit.request_id for submit in group])
            for submit in group:
                if not submit.prompt_token_ids:
                    submit.prompt_token_ids.extend(group[0].prompt_token_ids)
                if not submit.HasField("sampling"):
                    submit.sampling.CopyFrom(group[0].sampling)
                    submit.sampling.seed = submit.seed
                self.submitted.append(submit)
                if self.fail_submit is not None:
                    refused.append(failure(submit.request_id, self.fail_submit))
                else:
                    running[submit.request_id] = _Sequence(submit, self.reply)


def failure(request_id: str, error: HeadwayError) -> worker_pb2.SequenceOutput:
    return worker_pb2.SequenceOutput(
        request_id=request_id, finish_reason=common_pb2.FINISH_REASON_ERROR, error=error_to_pb(error)
    )


async def start(worker: ScriptedWorker, port: int = 0) -> tuple[grpc.aio.Server, int]:
    """A server on a port, any for 0, and which it is."""
    server = grpc.aio.server(interceptors=[CallInterceptor()], options=SERVER_OPTIONS)
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, port


async def _main(port: int, step_s: float) -> None:
    server, _ = await start(ScriptedWorker(step_s=step_s), port)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2])))
