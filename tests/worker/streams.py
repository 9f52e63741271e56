"""Callers of `GenerateTokens` that follow their sequences from worker to worker."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from headway.v1 import common_pb2, worker_pb2
from tests.worker.conftest import Bench

PROMPT = [7 + i * 11 % 400 for i in range(70)]
GREEDY = {"temperature": 0.0}
SEEDED = {"temperature": 0.9, "seed": 11, "top_p": 0.9}


@dataclass
class Stream:
    """What a caller of `GenerateTokens` holds: it submits anew where a sequence has moved, as a gateway does.

    Attributes:
        reached: set when each sequence has so many tokens as `run` was asked for.
        arrived: set when the first tokens have come from another worker than the first.
        others: what the first worker is told of others, as fields of `SubmitGroup`.
    """

    benches: dict[str, Bench]
    tokens: dict[str, list[int]]
    prompt: list[int]
    sampling: dict[str, Any]
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    others: dict[str, Any] = field(default_factory=dict)
    num_cached: list[int] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    async def run(self, worker_id: str, *, stops_after: int = 20) -> dict[str, list[int]]:
        while worker_id:
            self.places.append(worker_id)
            worker_id = await self._run(self.benches[worker_id], stops_after)
        return self.tokens

    async def _run(self, bench: Bench, stops_after: int) -> str:
        sequences = [
            worker_pb2.SubmitSequence(
                request_id=request_id,
                model="tiny",
                prompt_token_ids=self.prompt,
                output_token_ids=tokens,
                sampling=sampling(**self.sampling | {"seed": self.sampling.get("seed", 0) + index}),
            )
            for index, (request_id, tokens) in enumerate(self.tokens.items())
        ]
        call = bench.stub.GenerateTokens()
        for group in [sequences] if len(self.places) == 1 else [[sequence] for sequence in sequences]:
            others = self.others if len(self.places) == 1 else {}
            submit_group = worker_pb2.SubmitGroup(sequences=group, **others)
            action = worker_pb2.GenerateTokensRequest(submit_group=submit_group)
            await call.write(action)
        await call.done_writing()
        is_first, moved_to = True, ""
        async for message in call:
            for output in message.outputs:
                if output.moved_to_worker_id:
                    assert output.error.code == "unavailable"
                    moved_to = output.moved_to_worker_id
                    continue
                assert not output.HasField("error"), output.error
                if is_first:
                    if len(self.places) > 1:
                        self.arrived.set()
                    self.num_cached.append(output.num_cached_tokens)
                    is_first = False
                self.tokens[output.request_id] += output.token_ids
            if all(len(tokens) >= stops_after for tokens in self.tokens.values()):
                self.reached.set()
        return moved_to


def sampling(**fields: Any) -> common_pb2.SamplingParams:
    return common_pb2.SamplingParams(
        **{"max_tokens": 120, "top_p": 1.0, "repetition_penalty": 1.0, "ignore_eos": True} | fields
    )


def stream(
    pair: dict[str, Bench], *, n: int = 1, name: str = "req", prompt: list[int] = PROMPT, **fields: Any
) -> Stream:
    ids = [name] if n == 1 else [f"{name}/{index}" for index in range(n)]
    return Stream(pair, {request_id: [] for request_id in ids}, prompt, fields)


async def check_integrity(bench: Bench) -> None:
    """Nothing runs, no block is lost."""
    loaded = bench.service.require_generator()
    await loaded.engine.thread.call(lambda engine: engine.check_integrity())
    (usage,) = await bench.service.caches.usage()
    assert (usage.num_running, usage.num_waiting, usage.num_used_blocks) == (0, 0, 0)
