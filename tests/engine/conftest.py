"""A model small enough to know by heart, and a runner that checks every slot of the KV cache it is given.

The model's "keys and values" at a position are a hash of all tokens up to it, and the next token follows from the
last position's entry. The runner computes only from what lies in the blocks, so a wrong table, a block with two
owners or a skipped token changes the output or fails a check.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from headway.core.request import FinishReason, GenerationRequest, SamplingParams, TokenLogprobs
from headway.engine.batch import ScheduledSequence, StepBatch, StepResult
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine

MODULUS = (1 << 61) - 1


@dataclass(frozen=True)
class OracleModel:
    """Next token = pure function of the token prefix."""

    vocab_size: int = 50

    def entries(self, token_ids: list[int], *, before: int = 0) -> list[int]:
        """KV entries of consecutive tokens, given the entry `before` them."""
        chain = itertools.accumulate(
            token_ids, lambda entry, token: (entry * 31 + token + 7) ** 2 % MODULUS, initial=before
        )
        return list(chain)[1:]

    def next_token(self, entry: int) -> int:
        return entry // 1009 % self.vocab_size

    def logprobs(self, token_id: int, entry: int) -> TokenLogprobs:
        return TokenLogprobs(token_id, -float(entry % 997), rank=1 + entry % 7)

    def generate(self, request: GenerationRequest, config: EngineConfig) -> tuple[list[int], FinishReason]:
        """Plain generation, one token after the other: what the engine's output must equal."""
        sampling, output = request.sampling, list(request.output_token_ids)
        stops = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else config.eos_token_ids)}
        capacity = min(config.max_model_len, config.num_blocks * config.block_size + 1)
        while True:
            tokens = [*request.prompt_token_ids, *output]
            if len(output) > sampling.min_tokens and output[-1] in stops:
                return output, FinishReason.STOP
            if len(output) >= sampling.max_tokens or len(tokens) >= capacity:
                return output, FinishReason.LENGTH
            output.append(self.next_token(self.entries(tokens)[-1]))

    def prompt_logprobs(self, prompt: tuple[int, ...]) -> tuple[TokenLogprobs, ...]:
        entries = self.entries(list(prompt))
        return tuple(self.logprobs(token, entry) for token, entry in zip(prompt[1:], entries, strict=False))


@dataclass
class OracleRunner:
    """Runs the model on a simulated KV store, checking each batch against the engine's promises."""

    model: OracleModel
    config: EngineConfig
    store: dict[int, int] = field(default_factory=dict)  # slot -> entry
    batches: list[list[tuple[str, int]]] = field(default_factory=list)  # (request id, tokens) of each share
    failures: list[Exception] = field(default_factory=list)  # raised by the next calls

    def execute(self, batch: StepBatch) -> StepResult:
        self._check_shape(batch)
        for share in batch.sequences:
            self._write(share)
        if self.failures:
            raise self.failures.pop()
        for share in batch.sequences:
            self._check_content(share)
        result = StepResult([], [], [])
        for share in batch.sequences:
            self._sample(share, result)
        return result

    def _check_shape(self, batch: StepBatch) -> None:
        self.batches.append([(share.sequence.request_id, share.num_new_tokens) for share in batch.sequences])
        shares = [share.num_new_tokens for share in batch.sequences]
        assert shares
        assert min(shares) >= 1
        assert batch.num_tokens == sum(shares) <= self.config.max_num_batched_tokens
        assert len(shares) <= self.config.max_num_seqs
        for share in batch.sequences:
            sequence, end = share.sequence, _end(share)
            assert share.samples == (end == len(sequence.token_ids))
            assert len(sequence.block_table) == -(-end // self.config.block_size)

    def _write(self, share: ScheduledSequence) -> None:
        sequence, start, end = share.sequence, share.sequence.num_computed_tokens, _end(share)
        before = self.store[self._slot(share, start - 1)] if start else 0
        entries = self.model.entries(sequence.token_ids[start:end], before=before)
        for position, entry in enumerate(entries, start):
            self.store[self._slot(share, position)] = entry

    def _check_content(self, share: ScheduledSequence) -> None:
        """After all shares have written: a block with two owners shows here."""
        end = _end(share)
        content = [self.store[self._slot(share, position)] for position in range(end)]
        assert content == self.model.entries(share.sequence.token_ids[:end])

    def _sample(self, share: ScheduledSequence, result: StepResult) -> None:
        sequence, sampling = share.sequence, share.sequence.sampling
        start, end = sequence.num_computed_tokens, _end(share)
        last = self.store[self._slot(share, end - 1)]
        token_id = self.model.next_token(last) if share.samples else None
        wants_logprobs = token_id is not None and sampling.num_logprobs is not None
        result.token_ids.append(token_id)
        result.logprobs.append(self.model.logprobs(token_id or 0, last) if wants_logprobs else None)
        entries: list[TokenLogprobs] = []
        if sampling.num_prompt_logprobs is not None:
            for position in range(start, min(end, sequence.num_prompt_tokens - 1)):
                entry = self.store[self._slot(share, position)]
                entries.append(self.model.logprobs(sequence.token_ids[position + 1], entry))
        result.prompt_logprobs.append(tuple(entries))

    def _slot(self, share: ScheduledSequence, position: int) -> int:
        block = share.sequence.block_table[position // self.config.block_size]
        assert 0 <= block < self.config.num_blocks
        return block * self.config.block_size + position % self.config.block_size


def _end(share: ScheduledSequence) -> int:
    return share.sequence.num_computed_tokens + share.num_new_tokens


class Bench:
    """An engine on the oracle, whose clock ticks once per reading, and what came out of it per request."""

    def __init__(self, **limits: Any) -> None:
        self.config = EngineConfig(**{"num_blocks": 64, "block_size": 4, "max_model_len": 200, **limits})
        self.model = OracleModel()
        self.runner = OracleRunner(self.model, self.config)
        self.engine = Engine(self.config, runner=self.runner, clock=itertools.count().__next__)
        self.tokens: dict[str, list[int]] = {}
        self.reasons: dict[str, FinishReason] = {}
        self.first_outputs: list[str] = []

    def step(self) -> None:
        """One step; checks the books, that no decode is left out, and that nothing comes after an end."""
        running = [share.sequence for share in self.engine._scheduler._running]
        decoding = [(seq, seq.num_preemptions) for seq in running if seq.num_uncomputed_tokens == 1]
        outputs = self.engine.step()
        served = {output.request_id for output in outputs}
        assert all(seq.request_id in served or seq.num_preemptions > before for seq, before in decoding)
        for output in outputs:
            assert output.request_id not in self.reasons, "an output after the last one"
            if output.request_id not in self.tokens:
                self.first_outputs.append(output.request_id)
            self.tokens.setdefault(output.request_id, []).extend(output.token_ids)
            if output.finish_reason is not None:
                self.reasons[output.request_id] = output.finish_reason
        self.engine.check_integrity()

    def run(self, *requests: GenerationRequest, max_steps: int = 10_000) -> None:
        """Submits all at once and steps until nothing is left; checks that all blocks came back."""
        for request in requests:
            self.engine.submit(request)
        for _ in range(max_steps):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work, f"not done after {max_steps} steps"
        assert self.engine.stats().num_used_blocks == 0

    def check_output(self, request: GenerationRequest) -> None:
        """The request's output equals plain generation."""
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
        request_id: str, prompt: int | tuple[int, ...], *, output: tuple[int, ...] = (), **sampling: Any
    ) -> GenerationRequest:
        if isinstance(prompt, int):
            prompt = _unlike(request_id, prompt)
        return GenerationRequest(
            request_id=request_id,
            model="oracle",
            prompt_token_ids=prompt,
            output_token_ids=output,
            sampling=SamplingParams(**{"max_tokens": 12, **sampling}),
        )

    return make


def _unlike(request_id: str, length: int) -> tuple[int, ...]:
    draw = random.Random(request_id)
    return tuple(draw.randrange(50) for _ in range(length))
