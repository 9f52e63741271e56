"""Drives a runner with hand-made batches, standing in for the engine's scheduler."""

import random
from collections.abc import Callable
from collections.abc import Sequence as Items

from headway.core.request import SamplingParams, TokenLogprobs
from headway.engine.batch import Runner, ScheduledSequence, StepBatch, StepResult
from headway.engine.sequence import Sequence


class Stepper:
    """Runs every unfinished sequence in each step, at most `chunk_size` tokens of each.

    Blocks are given out in random order, so that a sequence's blocks are never neighbours by luck. `drafter` guesses
    what follows a sequence that decodes.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        num_blocks: int,
        block_size: int = 16,
        chunk_size: int = 10_000,
        drafter: Callable[[Sequence], tuple[int, ...]] = lambda sequence: (),
    ) -> None:
        self._runner = runner
        self._block_size = block_size
        self._chunk_size = chunk_size
        self._drafter = drafter
        self._free_blocks = list(range(num_blocks))
        random.Random(0).shuffle(self._free_blocks)
        self.num_steps = 0
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
        batch = self.schedule(self.sequences)
        self._runner.start(batch)
        self.commit(batch, self._runner.finish())

    def copy(self, batch: StepBatch) -> None:
        """Has the runner carry out a batch's copies."""
        self._runner.start(batch)
        self._runner.finish()

    def schedule(self, sequences: Items[Sequence]) -> StepBatch:
        """The next step of those that are not done."""
        scheduled_sequences = [self._schedule(sequence) for sequence in sequences if not is_done(sequence)]
        return StepBatch(scheduled_sequences, sum(scheduled.num_new_tokens for scheduled in scheduled_sequences))

    def commit(self, batch: StepBatch, result: StepResult) -> None:
        """Notes what a batch gave."""
        self.num_steps += 1
        for scheduled, samples, entries in zip(batch.sequences, result.samples, result.prompt_logprobs, strict=True):
            sequence = scheduled.sequence
            self.prompt_logprobs[sequence.request_id] += entries
            sequence.num_computed_tokens += scheduled.num_new_tokens - len(scheduled.draft_token_ids)
            assert len(samples) == scheduled.samples
            for sample in samples:
                sequence.token_ids += sample.token_ids
                sequence.num_computed_tokens += len(sample.token_ids) - 1
                self.logprobs[sequence.request_id] += sample.logprobs

    def run(self) -> list[list[int]]:
        """Steps until all are done; the output tokens of each sequence, without those that drafts gave too many."""
        while not all(is_done(sequence) for sequence in self.sequences):
            self.step()
        return [list(sequence.output_token_ids)[: sequence.sampling.max_tokens] for sequence in self.sequences]

    def take_block(self) -> int:
        return self._free_blocks.pop()

    def preempt(self, sequence: Sequence) -> None:
        """Takes the sequence's blocks away; what it had computed is computed again."""
        self._free_blocks += sequence.block_table
        del sequence.block_table[:]
        sequence.num_computed_tokens = 0

    def _schedule(self, sequence: Sequence) -> ScheduledSequence:
        drafts = self._drafter(sequence) if sequence.num_uncomputed_tokens == 1 else ()
        num_new = min(sequence.num_uncomputed_tokens, self._chunk_size) + len(drafts)
        num_blocks = -(-(sequence.num_computed_tokens + num_new) // self._block_size)
        while len(sequence.block_table) < num_blocks:
            sequence.block_table.append(self.take_block())
        samples = num_new - len(drafts) == sequence.num_uncomputed_tokens
        return ScheduledSequence(sequence, num_new, samples=samples, draft_token_ids=drafts)


def is_done(sequence: Sequence) -> bool:
    return sequence.num_output_tokens >= sequence.sampling.max_tokens
