"""Executes the engine's batches on a network, and on the rest of its group if it has one."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.core.sharding import ShardWork
from headway.engine.batch import RunnerLostError, StepBatch, StepResult
from headway.models.loader import Progress
from headway.runner.group_blocks import GroupBlocks
from headway.runner.guide import Guides
from headway.runner.inputs import flatten
from headway.runner.parallel.announcer import Announcer
from headway.runner.parallel.group import RankGroup
from headway.runner.prompt_scores import score_prompts
from headway.runner.sampler import Sampler
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_message import BlockCopies, StepKind, StepMessage
from headway.runner.synthetic import synthetic_batch
from headway.store.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class _Step:
    """One that is in flight."""

    batch: StepBatch
    message: StepMessage


class ModelRunner:
    """A loaded model with its KV pool; implements `headway.engine.batch.Runner`.

    Args:
        group: which this process leads; None alone.

    For the others see `ShardRunner`.

    Attributes:
        blocks: for whoever moves whole ones, with no batch in flight.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        group: RankGroup | None = None,
        num_blocks: int,
        block_size: int = 16,
        num_host_blocks: int = 0,
        device: str = "cpu",
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.spec = checkpoint.spec
        self.group = group or RankGroup.single()
        assert self.group.rank == 0, "the leader runs the engine"
        self._shard = ShardRunner(
            checkpoint,
            group=self.group,
            num_blocks=num_blocks,
            block_size=block_size,
            num_host_blocks=num_host_blocks,
            device=device,
            num_threads=num_threads,
            progress=progress,
        )
        control = self.group.control
        self._announcer: Announcer | None = None
        if control is not None:
            num_in_flight = self.group.parallel.pp
            self._announcer = Announcer(control, num_in_flight=num_in_flight, timeout_s=self.group.timeout_s)
        self.blocks = GroupBlocks(self._shard, group=self.group, announcer=self._announcer)
        self._in_flight: deque[_Step] = deque()
        guides = Guides(
            checkpoint.tokenizer_file, vocab_size=self.spec.vocab_size, eos_token_ids=self.spec.eos_token_ids
        )
        self._sampler = Sampler(eos_token_ids=self.spec.eos_token_ids, guides=guides)

    @property
    def weight_bytes(self) -> int:
        """Of this process."""
        return self._shard.weight_bytes

    @property
    def kv_bytes_per_block(self) -> int:
        """Of this process."""
        return self._shard.kv_bytes_per_block

    @property
    def shard_work(self) -> ShardWork:
        """Of this process; see `ShardRunner.shard_work`."""
        return self._shard.shard_work

    def start(self, batch: StepBatch) -> None:
        """Lets the stages before this one begin with a batch.

        Until it is finished, its sequences must not change, but for their blocks if the result is not wanted. As many
        batches as there are stages may be in flight.

        Raises:
            RunnerLostError: other ranks are gone, or something failed here that they have not noticed.
        """
        self._start(batch, on_scratch=False)

    @torch.inference_mode()
    def finish(self) -> StepResult:
        """Of the batches in flight the oldest: copies blocks, computes the tokens, writes their keys and values, and
        samples at sequences' ends.

        Raises:
            RunnerLostError: see `start`.
        """
        step = self._in_flight.popleft()
        with self._in_step():
            result, logits = self._compute(step)
        if logits is not None:
            result.samples = self._sampler.sample(logits, step.batch.sequences)
        return result

    def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds that one step takes, once the same step has run before.

        The step has `num_decodes` sequences that each add one token to `context_tokens` others, and one prompt that
        adds `prefill_tokens` to as many, if that is not 0. It runs on blocks of its own, with nothing else in flight.
        """
        assert not self._in_flight, "a step is measured by itself"
        batch, num_blocks = synthetic_batch(
            self.spec.vocab_size,
            block_size=self._shard.block_size,
            bytes_per_block=self.kv_bytes_per_block,
            prefill_tokens=prefill_tokens,
            num_decodes=num_decodes,
            context_tokens=context_tokens,
            num_shards=self.group.cache.size,
        )
        self._set_scratch(num_blocks)
        for _ in range(2):
            started_s = time.perf_counter()
            self._start(batch, on_scratch=True)
            self.finish()
            duration_s = time.perf_counter() - started_s
        self._set_scratch(0)
        return duration_s

    def close(self) -> None:
        """Finishes what is in flight, lets the group's other ranks go, and leaves it."""
        while self._in_flight:
            self.finish()
        if self._announcer is not None:
            self._announcer.stop()
            self.group.leave()

    def _set_scratch(self, num_blocks: int) -> None:
        if self._announcer is not None:
            self._announcer.announce(StepMessage(StepKind.SCRATCH, num_scratch_blocks=num_blocks))
        self._shard.set_scratch(num_blocks)

    def _start(self, batch: StepBatch, *, on_scratch: bool) -> None:
        facts = None
        if batch.sequences:
            facts = flatten(batch, block_size=self._shard.block_size, on_scratch=on_scratch)
        message = StepMessage(StepKind.STEP, BlockCopies.of(batch), facts)
        with self._in_step():
            if self._announcer is not None:
                self._announcer.announce(message)
            if facts is not None:
                self._shard.expect(facts)
        self._in_flight.append(_Step(batch, message))

    def _compute(self, step: _Step) -> tuple[StepResult, Tensor | None]:
        """All of the step but for its samples, which are to be taken from the logits, float32 [S, V]."""
        num_shares = len(step.batch.sequences)
        result = StepResult([()] * num_shares, [()] * num_shares)
        result.copy_s = self._shard.copy_blocks(step.message.copies)
        facts = step.message.facts
        if facts is None:
            return result, None
        parts = _leaders(self._shard.logits(facts))
        sampled = next(parts) if len(facts.sampled_rows) else None
        if len(facts.scored_rows):
            result.prompt_logprobs = score_prompts(step.batch.sequences, parts)
        # What computes nothing more still has to be run to its end.
        assert next(parts, None) is None, "all logits were asked for"
        return result, sampled

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """Around what other ranks take part in."""
        try:
            yield
        except RunnerLostError:
            raise
        except Exception as error:
            if self._announcer is None:
                raise
            # The others may wait for this rank in the middle of the network: nothing brings all in step again.
            raise RunnerLostError(f"the leader failed in the middle of a step: {error}") from error


def _leaders(parts: Iterator[Tensor | None]) -> Iterator[Tensor]:
    for logits in parts:
        assert logits is not None, "logits are gathered at the leader"
        yield logits
