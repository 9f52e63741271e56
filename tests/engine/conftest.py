"""An engine on the oracle model, watched step by step."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headway.core.request import (
    FinishReason,
    GenerationRequest,
    Hypothesis,
    SamplingParams,
    SequenceOutput,
    TokenLogprobs,
)
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.group import SequenceGroup
from tests.engine.oracle import OracleModel, OracleRunner, Poisoned


class Bench:
    """An engine on the oracle, whose clock ticks once per reading, and what came out of it per request."""

    def __init__(self, **limits: Any) -> None:
        self.config = EngineConfig(**{"num_blocks": 64, "block_size": 4, "max_model_len": 200, **limits})
        self.model = OracleModel()
        self.runner = OracleRunner(self.model, self.config)
        self.engine = Engine(self.config, runner=self.runner, clock=itertools.count().__next__)
        self.tokens: dict[str, list[int]] = {}
        self.prompt_logprobs: dict[str, tuple[TokenLogprobs, ...]] = {}
        self.hypotheses: dict[str, tuple[Hypothesis, ...]] = {}
        self.reasons: dict[str, FinishReason] = {}
        self.first_outputs: list[str] = []

    @property
    def running(self) -> list[SequenceGroup]:
        return self.engine._queues.running

    @property
    def is_recovering(self) -> bool:
        """Whether a step has failed, and it is not known yet for whom."""
        return self.engine._failing is not None or self.engine._bisection.is_active

    def step(self) -> None:
        """One step; checks the engine's integrity, and what it brought."""
        is_plain = self.config.num_micro_batches == 1 and not self.config.runs_ahead and not self.is_recovering
        decoding = self._decoding() if is_plain else []
        try:
            outputs = self.engine.step()
        except Poisoned:
            decoding = []
            outputs = self.engine.recover("it cannot be computed")
        served = {output.request_id for output in outputs}
        for group, num_preemptions, request_ids in decoding:
            if group in self.engine._scheduler._held:
                continue  # it makes room for another tenant
            split_off = set(request_ids) - {sequence.request_id for sequence in group.sequences}
            assert group.num_preemptions > num_preemptions or {*served, *split_off}.issuperset(request_ids)
        self.take(outputs)
        self.engine.check_integrity()

    def take(self, outputs: list[SequenceOutput]) -> None:
        """Keeps what came, at most one output for each request and nothing after an end."""
        assert len({output.request_id for output in outputs}) == len(outputs)
        for output in outputs:
            assert output.request_id not in self.reasons, "an output after the last one"
            if output.request_id not in self.tokens:
                self.first_outputs.append(output.request_id)
            self.tokens.setdefault(output.request_id, []).extend(output.token_ids)
            if output.prompt_logprobs:
                self.prompt_logprobs[output.request_id] = output.prompt_logprobs
            if output.finish_reason is not None:
                self.reasons[output.request_id] = output.finish_reason
                self.hypotheses[output.request_id] = output.hypotheses

    def _decoding(self) -> list[tuple[SequenceGroup, int, list[str]]]:
        """Groups that the next step must serve: no decode is left out where there is one batch at a time."""
        return [
            (group, group.num_preemptions, [sequence.request_id for sequence in group.sequences])
            for group in self.running
            if group.beams is None and all(sequence.num_uncomputed_tokens == 1 for sequence in group.sequences)
        ]

    def run(self, *requests: GenerationRequest, max_steps: int = 10_000) -> None:
        """Submits all at once, one by one, and steps until nothing is left."""
        self.run_groups(*([request] for request in requests), max_steps=max_steps)

    def run_groups(self, *groups: Sequence[GenerationRequest], max_steps: int = 10_000) -> None:
        """Submits all at once and steps until nothing is left; checks that all blocks came back."""
        for group in groups:
            self.engine.submit_group(group)
        for _ in range(max_steps):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work, f"not done after {max_steps} steps"
        stats = self.engine.block_stats()
        assert (stats.num_used, stats.num_host_used) == (stats.num_pinned, 0)

    def check_output(self, request: GenerationRequest) -> None:
        """The request's output equals plain generation, or plain beam search; so does what it says of the prompt."""
        if request.sampling.num_prompt_logprobs is not None and request.request_id in self.prompt_logprobs:
            assert self.prompt_logprobs[request.request_id] == self.model.prompt_logprobs(request.prompt_token_ids)
        if request.sampling.beam is not None:
            assert self.hypotheses[request.request_id] == self.model.search(request, self.config)
            assert self.tokens[request.request_id] == []
            return
        expected, reason = self.model.generate(request, self.config)
        new_tokens = expected[len(request.output_token_ids) :]
        assert self.tokens[request.request_id] == new_tokens
        assert self.reasons[request.request_id] is reason


@pytest.fixture(scope="session")
def make_bench() -> Callable[..., Bench]:
    return Bench


@pytest.fixture(scope="session")
def make_request() -> Callable[..., GenerationRequest]:
    """Builds requests; prompts are given as token ids, or as a length for a prompt unlike all others."""

    def make(
        request_id: str,
        prompt: int | tuple[int, ...],
        *,
        output: tuple[int, ...] = (),
        priority: int = 0,
        slack_s: float = math.inf,
        tenant: str = "",
        tenant_weight: float = 1.0,
        **sampling: Any,
    ) -> GenerationRequest:
        if isinstance(prompt, int):
            prompt = _unlike(request_id, prompt)
        return GenerationRequest(
            request_id=request_id,
            model="oracle",
            prompt_token_ids=prompt,
            output_token_ids=output,
            sampling=SamplingParams(**{"max_tokens": 12, **sampling}),
            priority=priority,
            slack_s=slack_s,
            tenant=tenant,
            tenant_weight=tenant_weight,
        )

    return make


@pytest.fixture(scope="session")
def make_group(make_request: Callable[..., GenerationRequest]) -> Callable[..., list[GenerationRequest]]:
    """Builds the samples of one prompt: "a-0", "a-1", ... with seeds 0, 1, ..."""

    def make(name: str, n: int, prompt: int | tuple[int, ...], **sampling: Any) -> list[GenerationRequest]:
        if isinstance(prompt, int):
            prompt = _unlike(name, prompt)
        return [make_request(f"{name}-{seed}", prompt, seed=seed, **sampling) for seed in range(n)]

    return make


def _unlike(request_id: str, length: int) -> tuple[int, ...]:
    draw = random.Random(request_id)
    return tuple(draw.randrange(50) for _ in range(length))
