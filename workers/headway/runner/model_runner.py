"""Executes the engine's batches on a network, and on the rest of its group if it has one."""

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from headway.engine.batch import RunnerLostError, StepBatch, StepResult
from headway.models.loader import Progress
from headway.runner.guide import Guides
from headway.runner.inputs import StepInput, flatten
from headway.runner.parallel.announcer import Announcer
from headway.runner.parallel.group import RankGroup
from headway.runner.prompt_scores import score_prompts
from headway.runner.sampler import Sampler
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_message import BlockCopies, StepKind, StepMessage
from headway.runner.synthetic import synthetic_batch
from headway.store.checkpoint import Checkpoint


class ModelRunner:
    """A loaded model with its KV pool; implements `headway.engine.batch.Runner`.

    Args:
        group: which this process leads; None alone.

    For the others see `ShardRunner`.
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
        self._announcer = None if control is None else Announcer(control, timeout_s=self.group.timeout_s)
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

    def execute(self, batch: StepBatch) -> StepResult:
        """Copies blocks, computes the batch's tokens, writes their keys and values, and samples at sequences' ends.

        Raises:
            RunnerLostError: other ranks are gone, or something failed here that they have not noticed.
        """
        return self._execute(batch, on_scratch=False)

    def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds that one step takes, once the same step has run before.

        The step has `num_decodes` sequences that each add one token to `context_tokens` others, and one prompt that
        adds `prefill_tokens` to as many, if that is not 0. It runs on blocks of its own, and must not run beside
        `execute`.
        """
        batch, num_blocks = synthetic_batch(
            self.spec.vocab_size,
            block_size=self._shard.block_size,
            bytes_per_block=self.kv_bytes_per_block,
            prefill_tokens=prefill_tokens,
            num_decodes=num_decodes,
            context_tokens=context_tokens,
        )
        self._set_scratch(num_blocks)
        self._execute(batch, on_scratch=True)
        started_s = time.perf_counter()
        self._execute(batch, on_scratch=True)
        duration_s = time.perf_counter() - started_s
        self._set_scratch(0)
        return duration_s

    def close(self) -> None:
        """Lets the group's other ranks go, and leaves it."""
        if self._announcer is not None:
            self._announcer.stop()
            self.group.leave()

    def _set_scratch(self, num_blocks: int) -> None:
        if self._announcer is not None:
            self._announcer.announce(StepMessage(StepKind.SCRATCH, num_scratch_blocks=num_blocks))
        self._shard.set_scratch(num_blocks)

    @torch.inference_mode()
    def _execute(self, batch: StepBatch, *, on_scratch: bool) -> StepResult:
        copies = BlockCopies.of(batch)
        facts = None
        if batch.sequences:
            facts = flatten(batch, block_size=self._shard.block_size, on_scratch=on_scratch)
        result, logits = self._compute(batch, StepMessage(StepKind.STEP, copies, facts))
        if logits is not None:
            result.samples = self._sampler.sample(logits, batch.sequences)
        return result

    def _compute(self, batch: StepBatch, message: StepMessage) -> tuple[StepResult, Tensor | None]:
        """`_compute_here`, together with the other ranks."""
        if self._announcer is None:
            return self._compute_here(batch, message)
        try:
            self._announcer.announce(message)
            return self._compute_here(batch, message)
        except RunnerLostError:
            raise
        except Exception as error:
            # The others may wait for this rank in the middle of the network: nothing brings all in step again.
            raise RunnerLostError(f"the leader failed in the middle of a step: {error}") from error

    def _compute_here(self, batch: StepBatch, message: StepMessage) -> tuple[StepResult, Tensor | None]:
        """All of the step but for its samples, which are to be taken from the logits, float32 [S, V]."""
        num_shares = len(batch.sequences)
        result = StepResult([()] * num_shares, [()] * num_shares)
        result.copy_s = self._shard.copy_blocks(message.copies)
        if message.facts is None:
            return result, None
        step = StepInput.of(message.facts, block_size=self._shard.block_size)
        parts = _leaders(self._shard.logits(step, on_scratch=message.facts.on_scratch))
        sampled = next(parts) if len(step.sampled_rows) else None
        scores = score_prompts(batch.sequences, parts) if len(step.scored_rows) else None
        # What computes nothing more still has to be run to its end.
        assert next(parts, None) is None, "all logits were asked for"
        if scores is not None:
            result.prompt_logprobs = scores
        return result, sampled


def _leaders(parts: Iterator[Tensor | None]) -> Iterator[Tensor]:
    for logits in parts:
        assert logits is not None, "logits are gathered at the leader"
        yield logits
