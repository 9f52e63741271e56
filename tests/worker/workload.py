"""Groups of requests, all at once through the production engine on a real network."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.checkpoint.model_directory import Checkpoint
from headway.core.parallel_config import SINGLE
from headway.core.request import GenerationRequest, Hypothesis, SamplingParams, TokenLogprobs
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.stats import StepStats
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.group import RankGroup
from headway.runner.step_graphs import CudaGraph

Group = Sequence[GenerationRequest]


@dataclass
class Answer:
    """Everything that came for one request."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    hypotheses: tuple[Hypothesis, ...] = ()
    end: tuple[str, int | None] | None = None  # finish reason and stop token


@dataclass
class Run:
    """What came out; `num_prefill_tokens` of all steps."""

    answers: dict[str, Answer]
    stats: StepStats
    num_prefill_tokens: int


def make_group(name: str, prompt: Sequence[int], *params: SamplingParams) -> list[GenerationRequest]:
    """Sequences that differ in their sampling's seed only."""
    return [
        GenerationRequest(request_id=f"{name}/{index}", model="m", prompt_token_ids=tuple(prompt), sampling=sampling)
        for index, sampling in enumerate(params)
    ]


def generate(
    checkpoint: Checkpoint,
    groups: Sequence[Group],
    *,
    ranks: RankGroup | None = None,
    num_blocks: int = 512,
    device: str = "cpu",
    capture: CudaGraph | None = None,
    **limits: object,
) -> Run:
    """Submits all, steps until nothing is left, and checks the engine's integrity after every step.

    Args:
        ranks: that this process leads; they are let go.
        num_blocks: of all ranks that share the cache together; `num_host_blocks` likewise.
    """
    parallel = SINGLE if ranks is None else ranks.parallel
    defaults = {"max_model_len": 256, "block_size": 16, "num_micro_batches": parallel.pp, "num_shards": parallel.cp}
    config = EngineConfig(**{"num_blocks": num_blocks, **defaults, **limits})
    runner = ModelRunner(
        checkpoint,
        group=ranks,
        num_blocks=config.num_blocks // parallel.cp,
        block_size=config.block_size,
        num_host_blocks=config.num_host_blocks // parallel.cp,
        max_num_seqs=config.max_num_seqs,
        device=device,
        capture=capture,
        runs_ahead=config.runs_ahead,
        num_threads=1,
    )
    engine = Engine(config, runner=runner, clock=time.perf_counter)
    answers = {request.request_id: Answer() for group in groups for request in group}
    for group in groups:
        engine.submit_group(group)
    num_prefill_tokens = 0
    while engine.has_work:
        for output in engine.step():
            answer = answers[output.request_id]
            assert answer.end is None, "an output after the last one"
            assert output.error == ""
            answer.token_ids += output.token_ids
            answer.logprobs += output.logprobs
            answer.prompt_logprobs += output.prompt_logprobs
            answer.hypotheses += output.hypotheses
            if output.finish_reason is not None:
                answer.end = (output.finish_reason, output.stop_token_id)
        num_prefill_tokens += engine.stats().num_prefill_tokens
        engine.check_integrity()
    assert engine.stats().num_used_blocks == 0
    runner.close()
    return Run(answers, engine.stats(), num_prefill_tokens)
