"""Drives a runner with hand-made batches, standing in for the engine's scheduler."""

import random
from collections.abc import Sequence as Items

from headway.core.request import SamplingParams, TokenLogprobs
from headway.engine.batch import Runner, ScheduledSequence, StepBatch
from headway.engine.sequence import Sequence


class Stepper:
    """Runs every unfinished sequence in each step, at most `chunk_size` tokens of each.

    Blocks are given out in random order, so that a sequence's blocks are never neighbours by luck.
    """

    def __init__(self, runner: Runner, *, num_blocks: int, block_size: int = 16, chunk_size: int = 10_000) -> None:
        self._runner = runner
        self._block_size = block_size
        self._chunk_size = chunk_size
        self._free_blocks = list(range(num_blocks))
        random.Random(0).shuffle(self._free_blocks)
        self.sequences: list[Sequence] = []
        self.logprobs: dict[str, list[TokenLogprobs]] = {}
        self.prompt_logprobs: dict[str, list[TokenLogprobs]] = {}

    def add(self, prompt: Items[int], sampling: SamplingParams) -> Sequence:
        name = f"request-{len(self.sequences)}"
        sequence = Sequence(name, list(prompt), len(prompt), sampling, arrival_s=0.0)
        self.sequences.append(sequence)
        self.logprobs[name], self.prompt_logprobs[name] = [], []
        return sequence

    def step(self) -> None:
        shares = [self._share(sequence) for sequence in self.sequences if not is_done(sequence)]
        num_tokens = sum(share.num_new_tokens for share in shares)
        result = self._runner.execute(StepBatch(shares, num_tokens))
        results = zip(shares, result.token_ids, result.logprobs, result.prompt_logprobs, strict=True)
        for share, token_id, logprob, prompt_logprobs in results:
            sequence = share.sequence
            sequence.num_computed_tokens += share.num_new_tokens
            self.prompt_logprobs[sequence.request_id] += prompt_logprobs
            assert (token_id is not None) == share.samples
            if token_id is not None:
                sequence.token_ids.append(token_id)
            if logprob is not None:
                self.logprobs[sequence.request_id].append(logprob)

    def run(self) -> list[list[int]]:
        """Steps until all are done; the output tokens of each sequence."""
        while not all(is_done(sequence) for sequence in self.sequences):
            self.step()
        return [list(sequence.output_token_ids) for sequence in self.sequences]

    def preempt(self, sequence: Sequence) -> None:
        """Takes the sequence's blocks away; what it had computed is computed again."""
        self._free_blocks += sequence.block_table
        sequence.block_table = []
        sequence.num_computed_tokens = 0

    def _share(self, sequence: Sequence) -> ScheduledSequence:
        num_new = min(sequence.num_uncomputed_tokens, self._chunk_size)
        num_blocks = -(-(sequence.num_computed_tokens + num_new) // self._block_size)
        while len(sequence.block_table) < num_blocks:
            sequence.block_table.append(self._free_blocks.pop())
        return ScheduledSequence(sequence, num_new, samples=num_new == sequence.num_uncomputed_tokens)


def is_done(sequence: Sequence) -> bool:
    return sequence.num_output_tokens >= sequence.sampling.max_tokens
