"""Executes the engine's batches on a network."""

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.request import TokenLogprobs
from headway.engine.batch import Sample, ScheduledSequence, StepBatch, StepResult
from headway.models.attention import AttentionContext
from headway.models.loader import Progress, load_model
from headway.runner.guide import Guides
from headway.runner.inputs import StepInput, build_step_input
from headway.runner.kv_pool import KvPool
from headway.runner.logprobs import token_logprobs
from headway.runner.sampler import Sampler
from headway.runner.synthetic import synthetic_batch
from headway.store.checkpoint import Checkpoint

# Prompt log probabilities are computed for so many logits at a time: 32 MiB.
_MAX_LOGITS = 1 << 23


class ModelRunner:
    """A loaded model with its KV pool; implements `headway.engine.batch.Runner`.

    Args:
        num_blocks, block_size: of the KV pool; block tables name blocks 0 to num_blocks - 1.
        num_host_blocks: of its host tier.
        num_threads: CPU threads that compute, process-wide; None leaves torch's setting.
        progress: called while weights are loaded.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        num_blocks: int,
        block_size: int = 16,
        num_host_blocks: int = 0,
        device: str = "cpu",
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self.spec = checkpoint.spec
        self._device = torch.device(device)
        self._model = load_model(checkpoint, device=self._device, progress=progress)
        self._pool = KvPool(
            self.spec,
            num_blocks=num_blocks,
            block_size=block_size,
            device=self._device,
            num_host_blocks=num_host_blocks,
        )
        guides = Guides(
            checkpoint.tokenizer_file, vocab_size=self.spec.vocab_size, eos_token_ids=self.spec.eos_token_ids
        )
        self._sampler = Sampler(eos_token_ids=self.spec.eos_token_ids, guides=guides)

    @property
    def weight_bytes(self) -> int:
        return self.spec.weight_bytes

    @property
    def kv_bytes_per_block(self) -> int:
        return self.spec.kv_bytes_per_token * self._pool.block_size

    def execute(self, batch: StepBatch) -> StepResult:
        """Copies blocks, computes the batch's tokens, writes their keys and values, and samples at sequences' ends."""
        copy_s = self._copy_blocks(batch)
        result = self._execute(batch, self._pool) if batch.sequences else StepResult([], [])
        result.copy_s = copy_s
        return result

    def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds that one step takes, once the same step has run before.

        The step has `num_decodes` sequences that each add one token to `context_tokens` others, and one prompt that
        adds `prefill_tokens` to as many, if that is not 0. It runs on blocks of its own, and must not run beside
        `execute`.
        """
        batch, num_blocks = synthetic_batch(
            self.spec,
            block_size=self._pool.block_size,
            prefill_tokens=prefill_tokens,
            num_decodes=num_decodes,
            context_tokens=context_tokens,
        )
        scratch = KvPool(self.spec, num_blocks=num_blocks, block_size=self._pool.block_size, device=self._device)
        # Untouched pages are all one page of zeros, and too quick to read.
        scratch.memory.zero_()
        self._execute(batch, scratch)
        started_s = time.perf_counter()
        self._execute(batch, scratch)
        return time.perf_counter() - started_s

    def _copy_blocks(self, batch: StepBatch) -> float:
        """Carries out the batch's copies; the seconds that those between the tiers took."""
        copy_s = 0.0
        if batch.swap_out or batch.swap_in:
            started_s = time.perf_counter()
            self._pool.copy_out(batch.swap_out)
            self._pool.copy_in(batch.swap_in)
            self._pool.synchronize()
            copy_s = time.perf_counter() - started_s
        self._pool.copy_within(batch.block_copies)
        return copy_s

    @torch.inference_mode()
    def _execute(self, batch: StepBatch, pool: KvPool) -> StepResult:
        step = build_step_input(batch, block_size=pool.block_size)
        if any(_scores_prompt(share) for share in batch.sequences):
            hidden = self._forward(step, pool)
            prompt_logprobs = self._score_prompts(batch, step, hidden)
            hidden = hidden[self._tensor(step.sampled_rows)]
        else:
            wants_all = len(step.sampled_rows) == len(step.token_ids)
            hidden = self._forward(step, pool, rows=None if wants_all else step.sampled_rows)
            prompt_logprobs = [()] * len(batch.sequences)
        return StepResult(self._sample(batch, hidden), prompt_logprobs)

    def _forward(self, step: StepInput, pool: KvPool, *, rows: NDArray[np.int64] | None = None) -> Tensor:
        """Hidden states of the given rows, or of all, [S, hidden]."""
        context = AttentionContext(
            slot_mapping=self._tensor(step.slot_mapping),
            block_tables=self._tensor(step.block_tables),
            seq_lens=self._tensor(step.seq_lens),
            query_start=self._tensor(step.query_start),
        )
        return self._model.forward(
            self._tensor(step.token_ids),
            self._tensor(step.positions),
            context,
            pool.layers,
            rows=None if rows is None else self._tensor(rows),
        )

    def _sample(self, batch: StepBatch, hidden: Tensor) -> list[tuple[Sample, ...]]:
        """Samples of each sequence, from the hidden states of the batch's sampled rows."""
        if len(hidden) == 0:
            return [()] * len(batch.sequences)
        return self._sampler.sample(self._model.compute_logits(hidden), batch.sequences)

    def _score_prompts(self, batch: StepBatch, step: StepInput, hidden: Tensor) -> list[tuple[TokenLogprobs, ...]]:
        return [
            self._score_prompt(share, hidden[first_row : first_row + share.num_new_tokens])
            for share, first_row in zip(batch.sequences, step.query_start.tolist(), strict=False)
        ]

    def _score_prompt(self, share: ScheduledSequence, hidden: Tensor) -> tuple[TokenLogprobs, ...]:
        """Log probabilities of the prompt tokens that follow the share's own, from its hidden states."""
        if not _scores_prompt(share):
            return ()
        sequence = share.sequence
        num_top = sequence.sampling.num_prompt_logprobs or 0
        first = sequence.num_computed_tokens + 1
        targets = sequence.token_ids[first : min(first + share.num_new_tokens, sequence.num_prompt_tokens)]
        entries: list[TokenLogprobs] = []
        chunk = max(1, _MAX_LOGITS // self.spec.vocab_size)
        for start in range(0, len(targets), chunk):
            token_ids = torch.tensor(targets[start : start + chunk], device=self._device)
            logits = self._model.compute_logits(hidden[start : start + len(token_ids)])
            entries += token_logprobs(logits, token_ids, num_top=[num_top] * len(token_ids))
        return tuple(entries)

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._device)


def _scores_prompt(share: ScheduledSequence) -> bool:
    """Whether the share's tokens precede prompt tokens whose log probabilities are asked for."""
    sequence = share.sequence
    is_asked = sequence.sampling.num_prompt_logprobs is not None
    return is_asked and sequence.num_computed_tokens + 1 < sequence.num_prompt_tokens
