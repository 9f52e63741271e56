"""A burst of requests that a group serves through the production engine."""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.engine.runner import ObservedRunner
from benchmarks.parallel.volume import StepShape
from headway.core.request import GenerationRequest, SamplingParams
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner

BLOCK_SIZE = 16
SEED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Greedy requests of one length, all at once."""

    num_requests: int
    prompt_tokens: int
    output_tokens: int

    def __str__(self) -> str:
        return f"{self.num_requests} x {self.prompt_tokens} + {self.output_tokens}"

    @property
    def num_blocks(self) -> int:
        per_request = -(-(self.prompt_tokens + self.output_tokens) // BLOCK_SIZE)
        return self.num_requests * (per_request + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one burst.

    Attributes:
        prefill_s, decode_s: of steps with prompt tokens in them, and of those without.
        waiting_s: of both, spent in collectives and for other stages by the leader.
        shapes: of its steps.
        token_ids: of every sequence.
    """

    prefill_s: float
    decode_s: float
    waiting_s: float
    shapes: tuple[StepShape, ...]
    token_ids: tuple[tuple[int, ...], ...]

    def tokens_per_s(self, burst: Burst) -> float:
        return burst.num_requests * burst.output_tokens / (self.prefill_s + self.decode_s)


def serve(burst: Burst, runner: ModelRunner, *, num_blocks: int) -> Outcome:
    """Submits all requests and steps until nothing is left.

    Args:
        num_blocks: of each rank's pool.
    """
    parallel, vocab_size = runner.group.parallel, runner.spec.vocab_size
    config = EngineConfig(
        num_blocks=num_blocks * parallel.cp,
        num_shards=parallel.cp,
        num_micro_batches=parallel.pp,
        block_size=BLOCK_SIZE,
        max_model_len=burst.prompt_tokens + burst.output_tokens,
        max_num_seqs=burst.num_requests,
        vocab_size=vocab_size,
        enable_prefix_cache=False,
    )
    shapes: list[StepShape] = []
    observed = ObservedRunner(runner, observe=lambda batch: shapes.append(StepShape.of(batch, num_blocks=num_blocks)))
    engine = Engine(config, runner=observed, clock=time.perf_counter)
    generator = np.random.default_rng(SEED)
    for number in range(burst.num_requests):
        prompt = generator.integers(3, vocab_size, burst.prompt_tokens).tolist()
        sampling = SamplingParams(max_tokens=burst.output_tokens, temperature=0.0, ignore_eos=True)
        engine.submit(
            GenerationRequest(request_id=str(number), model="", prompt_token_ids=tuple(prompt), sampling=sampling)
        )
    prefill_s = decode_s = 0.0
    waited_s = runner.group.traffic.seconds
    token_ids: dict[str, list[int]] = {str(number): [] for number in range(burst.num_requests)}
    while engine.has_work:
        started_s = time.perf_counter()
        for output in engine.step():
            token_ids[output.request_id] += output.token_ids
        step_s = time.perf_counter() - started_s
        if engine.stats().num_prefill_tokens:
            prefill_s += step_s
        else:
            decode_s += step_s
    return Outcome(
        prefill_s=prefill_s,
        decode_s=decode_s,
        waiting_s=runner.group.traffic.seconds - waited_s,
        shapes=tuple(shapes),
        token_ids=tuple(map(tuple, token_ids.values())),
    )
