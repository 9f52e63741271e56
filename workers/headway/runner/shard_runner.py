"""What every rank of a group has: its part of the network and of the KV pool."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.shard import shard_kv_bytes_per_token, shard_of, shard_weight_bytes
from headway.models.attention import AttentionContext
from headway.models.layout import Layout
from headway.models.loader import Progress, load_model
from headway.runner.inputs import StepInput
from headway.runner.kv_pool import KvPool
from headway.runner.parallel.group import RankGroup
from headway.runner.step_message import BlockCopies
from headway.store.checkpoint import Checkpoint

# Prompt log probabilities are computed for so many logits at a time: 32 MiB.
_MAX_LOGITS = 1 << 23


class ShardRunner:
    """Runs the steps that the group's leader decides on, in step with the group's other ranks.

    Args:
        group: this rank's place; alone, the part is the whole.
        num_blocks, block_size: of the KV pool; block tables name blocks 0 to num_blocks - 1.
        num_host_blocks: of its host tier.
        num_threads: CPU threads that compute, process-wide; None leaves torch's setting.
        progress: called while weights are loaded.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        group: RankGroup,
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
        self.shard = shard_of(self.spec, group.parallel, rank=group.rank)
        self._device = torch.device(device)
        layout = Layout(self.shard, group.tensor)
        self._model = load_model(checkpoint, layout=layout, device=self._device, progress=progress)
        self._pool = self._make_pool(num_blocks, block_size=block_size, num_host_blocks=num_host_blocks)
        self._scratch: KvPool | None = None

    @property
    def block_size(self) -> int:
        return self._pool.block_size

    @property
    def weight_bytes(self) -> int:
        """Of this rank."""
        return shard_weight_bytes(self.spec, self.shard)

    @property
    def kv_bytes_per_block(self) -> int:
        """Of this rank."""
        return shard_kv_bytes_per_token(self.spec, self.shard) * self._pool.block_size

    def copy_blocks(self, copies: BlockCopies) -> float:
        """Carries out a step's copies; the seconds that those between the tiers took."""
        copy_s = 0.0
        if len(copies.out) or len(copies.into):
            started_s = time.perf_counter()
            self._pool.copy_out(copies.out.tolist())
            self._pool.copy_in(copies.into.tolist())
            self._pool.synchronize()
            copy_s = time.perf_counter() - started_s
        if len(copies.within):
            self._pool.copy_within(copies.within.tolist())
        return copy_s

    def set_scratch(self, num_blocks: int) -> None:
        """Makes a second pool, for steps that must not touch the first; with 0, drops it."""
        self._scratch = self._make_pool(num_blocks, block_size=self._pool.block_size) if num_blocks else None
        if self._scratch is not None:
            # Untouched pages are all one page of zeros, and too quick to read.
            self._scratch.memory.zero_()

    @torch.inference_mode()
    def logits(self, step: StepInput, *, on_scratch: bool = False) -> Iterator[Tensor | None]:
        """Computes the step's tokens, writes their keys and values, and gives the logits that are asked for.

        Every rank has to take all that it yields, since all ranks compute each together: first the logits behind the
        sampled rows, if there are any, then those behind the scored rows, some at a time; float32 [n, V] at the
        leader, None elsewhere.
        """
        pool = self._scratch if on_scratch else self._pool
        assert pool is not None, "there is a scratch pool"
        num_sampled, num_scored = len(step.sampled_rows), len(step.scored_rows)
        rows = np.concatenate((step.sampled_rows, step.scored_rows)) if num_scored else step.sampled_rows
        wants_all = num_sampled == len(step.token_ids)
        hidden = self._forward(step, pool, rows=None if wants_all else rows)
        if num_sampled:
            yield self._model.compute_logits(hidden[:num_sampled])
        num_at_once = max(1, _MAX_LOGITS // self.spec.vocab_size)
        for start in range(num_sampled, num_sampled + num_scored, num_at_once):
            yield self._model.compute_logits(hidden[start : start + num_at_once])

    def _forward(self, step: StepInput, pool: KvPool, *, rows: NDArray[np.int64] | None) -> Tensor:
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

    def _make_pool(self, num_blocks: int, *, block_size: int, num_host_blocks: int = 0) -> KvPool:
        return KvPool(
            self.spec,
            shard=self.shard,
            num_blocks=num_blocks,
            block_size=block_size,
            device=self._device,
            num_host_blocks=num_host_blocks,
        )

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._device)
