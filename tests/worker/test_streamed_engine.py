"""Engines of others: a sequence has an end here, whatever became of it there."""

import asyncio
from collections.abc import Sequence
from typing import Any

from headway.core.engine_kind import EngineKind
from headway.core.errors import ErrorCode, HeadwayError
from headway.core.load_order import LoadOrder
from headway.core.request import GenerationRequest, SamplingParams, SequenceOutput
from headway.engine.stats import StepStats
from headway.worker.serving_engine import EngineFacts
from headway.worker.streamed_engine import StreamedEngine
from tests.specs import llama_spec

ORDER = LoadOrder(
    model="tiny",
    directory="",
    dtype="",
    num_blocks=8,
    block_size=4,
    max_num_seqs=4,
    max_num_batched_tokens=16,
    max_model_len=32,
    enable_prefix_cache=True,
)


class Forgetful(StreamedEngine):
    """Gives one token of each sequence and no end, as vLLM where a sequence failed ("error")."""

    def __init__(self) -> None:
        super().__init__(ORDER, llama_spec(), facts=EngineFacts(kind=EngineKind.VLLM, weight_bytes=0))

    async def stop(self) -> None:
        """Nothing runs."""

    def _begin(self) -> None:
        """It listens to nothing."""

    def _wake_up(self) -> None:
        """It has no steps."""

    async def _generate(self, request: GenerationRequest, *, num_left: int) -> None:
        self._deliver(SequenceOutput(request.request_id, (7,)))

    def _stats(self) -> StepStats:
        return self._totals.stats(num_cached_blocks=0)


class Listener:
    def __init__(self) -> None:
        self.outputs: list[SequenceOutput] = []

    def on_step(self, outputs: list[SequenceOutput], stats: Any) -> None:
        self.outputs += outputs

    def on_idle(self, stats: Any) -> None:
        """Nobody waits for that."""

    def on_crash(self) -> None:
        raise AssertionError("it lives")


async def test_a_sequence_that_the_engine_gives_up_goes_on_elsewhere() -> None:
    """Its caller waited for ever, and when that left, the worker read no more of its gateway's stream."""
    engine, listener, refused = Forgetful(), Listener(), list[tuple[list[str], HeadwayError]]()

    def refuse(request_ids: Sequence[str], error: HeadwayError) -> None:
        refused.append((list(request_ids), error))

    engine.start(listener)
    request = GenerationRequest(request_id="r", model="tiny", prompt_token_ids=(1, 2), sampling=SamplingParams())
    engine.submit([request], refuse=refuse)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [output.token_ids for output in listener.outputs] == [(7,)]
    assert [(request_ids, error.code) for request_ids, error in refused] == [(["r"], ErrorCode.UNAVAILABLE)]
    engine.cancel(["r"])
