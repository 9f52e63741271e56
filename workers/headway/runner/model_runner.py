"""Executes the engine's batches on a network, and on the rest of its group if it has one."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.checkpoint.model_directory import Checkpoint
from headway.core.cache_sharding import ShardWork
from headway.core.request import Guide
from headway.engine.batch import StepBatch, StepResult
from headway.kernels import KernelSet, kernel_set
from headway.models.loader import Progress
from headway.runner.future_tokens import FutureTokens
from headway.runner.group_blocks import GroupBlocks
from headway.runner.guide import Guides
from headway.runner.inputs import flatten
from headway.runner.parallel.collective_counters import CollectiveCounters
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.leader import Leader, Step
from headway.runner.prompt_scores import score_prompts
from headway.runner.sampler import Sampler
from headway.runner.sampler_output import SamplerOutput
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_graphs import CudaGraph
from headway.runner.step_message import PENDING, BlockCopies, ModelInput, StepKind, StepMessage
from headway.runner.synthetic import synthetic_batch


@dataclass(frozen=True, slots=True)
class _Heads:
    """The output head's results for a step, see `ModelInput`; None where they are not asked for.

    Attributes:
        best: the most likely token of each of the best rows, int64 [N].
        logits: the logits of the sampled rows, float32 [S, V].
    """

    best: Tensor | None
    logits: Tensor | None


@dataclass(slots=True)
class _InFlightBatch:
    """A batch, and the step that brings its result and what to sample from.

    Attributes:
        launched: the step's result, and its samples as soon as they are drawn; None before.
    """

    batch: StepBatch
    step: Step[tuple[StepResult, _Heads | None]]
    launched: tuple[StepResult, SamplerOutput | None] | None = None


class ModelRunner:
    """A loaded model with its KV pool; implements `headway.engine.batch.Runner`.

    Args:
        group: which this process leads; None alone.
        leader: of the group, where it has several models; it has opened this one. None for its only one.
        number: of the model in the group.
        runs_ahead: each batch is launched as soon as it is started, behind the one in flight, from which it takes the
            tokens that only the device knows: for an engine that runs ahead. The process is alone.

    For the others see `ShardRunner`.

    Attributes:
        blocks: for whoever moves whole ones, with no batch in flight.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        group: RankGroup | None = None,
        leader: Leader | None = None,
        number: int = 0,
        num_blocks: int,
        block_size: int = 16,
        num_host_blocks: int = 0,
        max_num_seqs: int = 64,
        device: str = "cpu",
        capture: CudaGraph | None = None,
        runs_ahead: bool = False,
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.spec = checkpoint.spec
        self.group = group or RankGroup.single()
        assert self.group.rank == 0, "the leader runs the engine"
        assert not runs_ahead or self.group.parallel.num_ranks == 1, "ranks of a group wait for each other's steps"
        self.runs_ahead = runs_ahead
        self._shard = ShardRunner(
            checkpoint,
            group=self.group,
            num_blocks=num_blocks,
            block_size=block_size,
            num_host_blocks=num_host_blocks,
            max_num_seqs=max_num_seqs,
            device=device,
            capture=capture,
            num_threads=num_threads,
            progress=progress,
        )
        if leader is None:
            leader = Leader(self.group)
            leader.open(number)
        self._leader = leader
        self._number = number
        self.blocks = GroupBlocks(self._shard, group=self.group, leader=leader, model=number)
        # Where tokens go on from step to step on a device, all of them are drawn there.
        self._finds_best = not runs_ahead and kernel_set(torch.device(device)) is KernelSet.CPU
        self._in_flight: deque[_InFlightBatch] = deque()
        self._guides = Guides(
            checkpoint.tokenizer_file, vocab_size=self.spec.vocab_size, eos_token_ids=self.spec.eos_token_ids
        )
        self._sampler = Sampler(eos_token_ids=self.spec.eos_token_ids, guides=self._guides)

    def populate_cache(self) -> None:
        """See `ShardRunner`; each rank does so for itself."""
        self._shard.populate_cache()

    @property
    def weight_bytes(self) -> int:
        """The size of this process's weights."""
        return self._shard.weight_bytes

    @property
    def kv_bytes_per_block(self) -> int:
        """The size of one KV block in this process."""
        return self._shard.kv_bytes_per_block

    @property
    def traffic(self) -> CollectiveCounters:
        return self.group.traffic

    @property
    def shard_work(self) -> ShardWork:
        """What attention over this process's cache shard has cost; see `ShardRunner.shard_work`."""
        return self._shard.shard_work

    def prepare(self, guide: Guide) -> str:
        """See `Guides.prepare`; it may be called from any thread."""
        return self._guides.prepare(guide)

    def start(self, batch: StepBatch) -> None:
        """Lets the stages before this one begin with a batch; when running ahead, launches it.

        Until it is finished, its sequences must not change, but for their blocks if the result is not wanted, and for
        the tokens of the batch before. As many batches as there are stages may be in flight, one more when running
        ahead.

        Raises:
            RunnerLostError: other ranks are gone, or something failed here that they have not noticed.
        """
        self._start(batch, on_scratch=False)

    def finish(self) -> StepResult:
        """Finishes the oldest of the batches in flight: copies blocks, computes the tokens, writes their keys and
        values, and samples at sequences' ends.

        Raises:
            RunnerLostError: see `start`.
        """
        in_flight = self._in_flight.popleft()
        result, sampler_output = in_flight.launched or self._launch(in_flight)
        if sampler_output is not None:
            result.samples = sampler_output.finish()
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
        self._set_scratch(num_blocks, num_decodes=0 if prefill_tokens else num_decodes)
        for _ in range(2):
            started_s = time.perf_counter()
            self._start(batch, on_scratch=True)
            self.finish()
            duration_s = time.perf_counter() - started_s
        self._set_scratch(0)
        return duration_s

    def close(self) -> None:
        """Finishes what is in flight, and has the group's other ranks drop the model, or with its last one go."""
        while self._in_flight:
            self.finish()
        self._leader.close(self._number)

    def _set_scratch(self, num_blocks: int, *, num_decodes: int = 0) -> None:
        with self._leader.alone():
            self._leader.tell(StepMessage(StepKind.SCRATCH, num_scratch_blocks=num_blocks, model=self._number))
            self._shard.set_scratch(num_blocks, num_decodes=num_decodes)

    def _start(self, batch: StepBatch, *, on_scratch: bool) -> None:
        model_input = None
        if batch.sequences:
            model_input = flatten(
                batch, block_size=self._shard.block_size, on_scratch=on_scratch, finds_best=self._finds_best
            )
        future = self._future(batch, model_input) if self.runs_ahead and model_input is not None else None
        message = StepMessage(StepKind.STEP, BlockCopies.of(batch), model_input, model=self._number)
        step = self._leader.start(
            message, compute=lambda: self._compute(batch, message, future), expect=lambda: self._expect(model_input)
        )
        in_flight = _InFlightBatch(batch, step)
        if self.runs_ahead:
            in_flight.launched = self._launch(in_flight)
        self._in_flight.append(in_flight)

    def _launch(self, in_flight: _InFlightBatch) -> tuple[StepResult, SamplerOutput | None]:
        """Starts what is left to compute of a batch, after all that was started before it."""
        result, heads = self._leader.finish(in_flight.step)
        if heads is None:
            return result, None
        return result, self._sampler.start(heads.logits, in_flight.batch.sequences, best=heads.best)

    @torch.inference_mode()
    def _future(self, batch: StepBatch, model_input: ModelInput) -> FutureTokens | None:
        """The tokens that the batch in flight samples for this one."""
        rows = np.flatnonzero(model_input.token_ids == PENDING)
        if len(rows) == 0:
            return None
        launched = self._in_flight[-1].launched
        assert launched is not None, "each batch is launched when it is started"
        assert launched[1] is not None, "a token that is pending is being drawn"
        draws = launched[1].rows
        assert draws is not None, "a runner that runs ahead draws all tokens"
        owners = [scheduled.sequence for scheduled in batch.sequences if scheduled.start == len(scheduled.sequence)]
        return FutureTokens.of(rows, sampled=draws.token_ids, sources=draws.sources(owners))

    def _expect(self, model_input: ModelInput | None) -> None:
        if model_input is not None:
            self._shard.expect(model_input)

    def _compute(
        self, batch: StepBatch, message: StepMessage, future: FutureTokens | None
    ) -> tuple[StepResult, _Heads | None]:
        """Computes the whole step but for its samples."""
        num_scheduled = len(batch.sequences)
        result = StepResult([()] * num_scheduled, [()] * num_scheduled)
        model_input = message.model_input
        has_heads = self.group.parallel.pp > 1 and model_input is not None and model_input.wants_logits
        is_early = self._leader.shows_heads_early
        if has_heads and is_early:
            # The other stages go on to the head as soon as they have done what was announced before.
            self._leader.tell(StepMessage(StepKind.HEAD))
        result.copy_s = self._shard.copy_blocks(message.copies)
        batch.has_copied = True
        if model_input is None:
            return result, None
        best = self._shard.compute(model_input, future=future)
        if has_heads and not is_early:
            self._leader.tell(StepMessage(StepKind.HEAD))
        return result, self._take_heads(batch, model_input, result) if best is None else _Heads(best, None)

    @torch.inference_mode()
    def _take_heads(self, batch: StepBatch, model_input: ModelInput, result: StepResult) -> _Heads | None:
        """Takes the head's results from the shard; the prompts' log probabilities go into `result`."""
        parts = _leaders(self._shard.logits())
        best = next(parts) if len(model_input.best_rows) else None
        logits = next(parts) if len(model_input.sampled_rows) else None
        if len(model_input.scored_rows):
            result.prompt_logprobs = score_prompts(batch.sequences, parts)
        # What computes nothing more still has to be run to its end.
        assert next(parts, None) is None, "all logits were asked for"
        return None if best is None and logits is None else _Heads(best, logits)


def _leaders(parts: Iterator[Tensor | None]) -> Iterator[Tensor]:
    for part in parts:
        assert part is not None, "what heads give is gathered at the leader"
        yield part
