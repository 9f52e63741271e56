"""One rank's part of a model's network and KV pool, which every rank of a group has."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from headway.checkpoint.model_directory import Checkpoint
from headway.core.cache_sharding import ShardWork
from headway.core.parallel_config import Span
from headway.core.shard import shard_kv_bytes_per_token, shard_of, shard_weight_bytes
from headway.kernels import KernelSet, kernel_set, to_device
from headway.models.cache_exchange import exchange_of
from headway.models.layout import Alone, Layout
from headway.models.loader import Progress, load_model
from headway.models.model import DTYPES
from headway.runner.broken_rows import without_broken
from headway.runner.forward import Forward
from headway.runner.future_tokens import FutureTokens
from headway.runner.inputs import StepInput
from headway.runner.kv_pool import KvPool
from headway.runner.parallel.group import RankGroup
from headway.runner.replays import Replayed, Replays
from headway.runner.row_partition import RowPartition
from headway.runner.shard_copies import LocalCopy, copy_between
from headway.runner.shard_meter import ShardMeter
from headway.runner.step_graphs import CudaGraph
from headway.runner.step_message import BlockCopies, ModelInput, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Rows of a step whose logits are to be given, part by part.

    Attributes:
        rows: [n] of each part, ascending.
        is_best_first: of the first part only the best tokens are wanted.
        num_own: of each part, how many this rank computes outside attention.
        hidden: [sum of num_own, width], of the last stage; None elsewhere.
    """

    partition: RowPartition
    rows: tuple[Words, ...]
    is_best_first: bool
    num_own: list[int]
    hidden: Tensor | None


_NO_ROWS: Final = np.zeros(0, np.int32)

# Prompt log probabilities are computed for so many logits at a time: 32 MiB.
_MAX_LOGITS = 1 << 23


class ShardRunner:
    """Runs the steps that the group's leader decides on, in step with the group's other ranks.

    Args:
        group: this rank's place; alone, the part is the whole.
        num_blocks, block_size: of this rank's KV pool. Where ranks share the cache, block tables name the blocks of all
            of them: rank s along that axis has blocks s * num_blocks up to (s + 1) * num_blocks.
        num_host_blocks: of its host tier; named in the same way.
        max_num_seqs: of a step; more are computed too, on a GPU less fast.
        capture: records decode steps, of a model that is alone and on a GPU; None to launch each kernel by itself.
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
        max_num_seqs: int = 64,
        device: str = "cpu",
        capture: CudaGraph | None = None,
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self.spec = checkpoint.spec
        self.shard = shard_of(self.spec, group.parallel, rank=group.rank)
        self._parallel, self._rank = group.parallel, group.rank
        self._device = torch.device(device)
        self._dtype = DTYPES[self.spec.dtype]
        self._previous, self._next = group.previous, group.next
        self._traffic = group.traffic
        exchange = exchange_of(self.spec, group.parallel, rank=group.rank, axis=group.cache)
        self._meter = None if exchange is None or self._device.type != "cpu" else ShardMeter(exchange)
        layout = Layout(self.shard, group.tensor, group.head, self._meter or exchange)
        # Where they share the weights too, each computes all rows.
        self._row_axis = group.cache if group.parallel.cp_ffn == "data" else Alone()
        self._cache_axis = group.cache
        self._head_axis = group.head
        self._windows = frozenset(self.spec.window(layer) for layer in self.shard.layers)
        self._model = load_model(checkpoint, layout=layout, device=self._device, progress=progress)
        self._network = Forward(
            self._model,
            spec=self.spec,
            shard=self.shard,
            windows=self._windows,
            max_num_seqs=max_num_seqs,
            device=self._device,
        )
        self._pool = self._make_pool(num_blocks, block_size=block_size, num_host_blocks=num_host_blocks)
        self._capture = capture
        max_num_blocks = -(-self.spec.max_position // block_size)
        self._replays = self._make_replays(self._pool, max_num_blocks=min(num_blocks, max_num_blocks))
        self._scratch: KvPool | None = None
        self._scratch_replays: Replays | None = None
        self._wanted: deque[_Wanted] = deque()

    def populate_cache(self) -> None:
        """Has the KV pool's memory come in the background: the first sequences need not wait for each page."""
        self._pool.populate()

    @property
    def block_size(self) -> int:
        return self._pool.block_size

    @property
    def weight_bytes(self) -> int:
        """The size of this rank's weights."""
        return shard_weight_bytes(self.spec, self.shard)

    @property
    def kv_bytes_per_block(self) -> int:
        """The size of one KV block on this rank."""
        return shard_kv_bytes_per_token(self.spec, self.shard) * self._pool.block_size

    @property
    def shard_work(self) -> ShardWork:
        """What attention over this rank's shard of the cache has cost; empty where the cache is whole, and on GPUs,
        where it is not measured.
        """
        return ShardWork() if self._meter is None else self._meter.work

    def copy_blocks(self, copies: BlockCopies) -> float:
        """Carries out a step's copies; the seconds that those between the tiers took."""
        self._traffic.open()
        pool, copy_s = self._pool, 0.0
        if len(copies.out) or len(copies.into):
            pool.synchronize()  # the step before may be under way
            started_s = time.perf_counter()
            self._copy(copies.out, pool.blocks, pool.host_memory, copy=pool.copy_out)
            self._copy(copies.into, pool.host_memory, pool.blocks, copy=pool.copy_into)
            pool.synchronize()
            copy_s = time.perf_counter() - started_s
        self._copy(copies.within, pool.blocks, pool.blocks, copy=pool.copy_within)
        return copy_s

    def lie_with(self, rank: int, blocks: Words) -> Tensor:
        """[n] bool, which of the blocks, (block, whether of the host tier), lie on a rank's shard of the cache."""
        return torch.from_numpy(blocks[:, 0] // self._num_own(blocks) == self._parallel.place(rank).shard)

    def read_part(self, blocks: Words) -> Tensor:
        """[k, layers, 2, kv heads, block_size, head_dim]: what this rank has of the k blocks that lie with it."""
        return self._pool.read(self._own_numbers(blocks))

    def write_part(self, blocks: Words, part: Tensor) -> None:
        """Takes what `read_part` gave, here or elsewhere."""
        self._pool.write(self._own_numbers(blocks), part)

    def part_room(self, blocks: Words) -> Tensor:
        """Makes an empty tensor with room for the blocks that `write_part` takes."""
        num_blocks = int(self.lie_with(self._rank, blocks).sum())
        return torch.empty((num_blocks, *self._pool.blocks.shape[1:]), dtype=self._pool.memory.dtype)

    def set_scratch(self, num_blocks: int, *, num_decodes: int = 0) -> None:
        """Makes a second pool, for steps that must not touch the first; with 0, drops it.

        Args:
            num_decodes: of the steps, if those are decodes alone: they are replayed as they are on the first.
        """
        self._scratch = self._make_pool(num_blocks, block_size=self._pool.block_size) if num_blocks else None
        self._scratch_replays = None
        if self._scratch is not None:
            if num_decodes:
                # Sequences may share blocks here, and have more of them than there are.
                max_num_blocks = -(-self.spec.max_position // self._pool.block_size)
                self._scratch_replays = self._make_replays(
                    self._scratch, max_num_blocks=max_num_blocks, num_rows=num_decodes
                )
            # Untouched pages are all one page of zeros, and too quick to read.
            self._scratch.memory.zero_()

    def expect(self, model_input: ModelInput) -> None:
        """Gets ready for what the stage before will send of a step, before an earlier one is computed if need be."""
        if self._previous is not None:
            shape = (len(RowPartition(len(model_input.token_ids), self._row_axis).own), self.spec.hidden_size)
            self._previous.expect(shape, dtype=self._dtype, device=self._device)

    def compute(self, model_input: ModelInput, *, future: FutureTokens | None = None) -> Tensor | None:
        """Takes the step's tokens through this stage's layers, writes their keys and values, and sends the next stage
        what it goes on with. Steps come in the order in which they were expected.

        Args:
            future: the tokens that are pending, of a process that is alone.

        Returns:
            What `logits` would give, where it is known already: the best tokens behind all rows, int64 [T], until the
            next step. `NO_TOKEN` where a row is broken. Else None, and it is to be asked.
        """
        replays = self._scratch_replays if model_input.on_scratch else self._replays
        replayed = None if replays is None else replays.replay(model_input, future=future)
        if replayed is None:
            self._compute(model_input, future)
            return None
        if replayed.best is None and model_input.wants_logits:
            self._wanted.append(self._wanted_of(replayed, model_input))
        return replayed.best

    def _wanted_of(self, replayed: Replayed, model_input: ModelInput) -> _Wanted:
        """Returns the rows whose head is wanted of a replayed step; for a process that is alone."""
        parts, num_rows = self._parts(model_input), len(model_input.token_ids)
        hidden = replayed.hidden
        if [len(part) for part in parts] != [num_rows]:  # all in their order
            hidden = hidden[to_device(torch.from_numpy(np.concatenate(parts)), self._device)]
        return _Wanted(
            partition=RowPartition(num_rows, self._row_axis),
            rows=parts,
            is_best_first=len(model_input.best_rows) > 0,
            num_own=[len(part) for part in parts],
            hidden=hidden,
        )

    @torch.inference_mode()
    def _compute(self, model_input: ModelInput, future: FutureTokens | None) -> None:
        self._traffic.open()
        pool = self._scratch if model_input.on_scratch else self._pool
        assert pool is not None, "there is a scratch pool"
        step = StepInput.of(
            model_input, block_size=pool.block_size, blocks=self._blocks_of(pool), windows=self._windows
        )
        if self._meter is not None:
            self._meter.num_keys = step.num_keys
        partition = RowPartition(len(step.token_ids), self._row_axis)
        wanted = self._parts(model_input)
        own_rows = [partition.pick(part) for part in wanted]
        hidden = self._forward(step, pool, partition.own, own_rows, future=future)
        if self._next is not None:
            self._next.send(hidden)
        if wanted:
            num_own = [len(own) for own in own_rows]
            final = hidden if self._next is None else None
            self._wanted.append(
                _Wanted(
                    partition=partition,
                    rows=wanted,
                    is_best_first=len(model_input.best_rows) > 0,
                    num_own=num_own,
                    hidden=final,
                )
            )

    def logits(self) -> Iterator[Tensor | None]:
        """The logits that are asked for of the oldest step that has computed and not given them; nothing if none has.
        To be taken in inference mode.

        Every rank has to take all that it yields, since all ranks of all stages compute each together: first the best
        tokens behind the rows that want no more, if there are any, int64 [n]; then the logits behind the sampled rows,
        if there are any, and those behind the scored rows, some at a time, float32 [n, V]. None but at the leader.
        """
        if not self._wanted:
            return
        self._traffic.open()
        wanted = self._wanted.popleft()
        hidden = self._show(wanted.hidden, num_rows=sum(wanted.num_own))
        partition, is_best = wanted.partition, wanted.is_best_first
        start = 0
        for rows, num_own in zip(wanted.rows, wanted.num_own, strict=True):
            own_hidden = hidden[start : start + num_own]
            start += num_own
            if is_best:
                largest = self._model.largest_logits(own_hidden)
                best = None if largest is None else without_broken(largest[1], largest[0])
                yield partition.collect(best, rows, site="best")
            else:
                yield partition.collect(self._model.compute_logits(own_hidden), rows, site="logits")
            is_best = False

    def _parts(self, model_input: ModelInput) -> tuple[Words, ...]:
        """Rows whose logits are wanted at once."""
        num_at_once = max(1, _MAX_LOGITS // self.spec.vocab_size)
        starts = range(0, len(model_input.scored_rows), num_at_once)
        chosen = [rows for rows in (model_input.best_rows, model_input.sampled_rows) if len(rows)]
        return (*chosen, *(model_input.scored_rows[start : start + num_at_once] for start in starts))

    def _show(self, hidden: Tensor | None, *, num_rows: int) -> Tensor:
        """The last stage's hidden states, [num_rows, width], at every rank that shares the head with it."""
        axis = self._head_axis
        if hidden is not None and self._previous is None:
            return hidden  # of the only stage
        if hidden is None or axis.rank > 0:
            width = self.spec.embedding_dim or self.spec.hidden_size
            hidden = torch.empty((0, width), dtype=self._dtype, device=self._device)
        return axis.all_gather(hidden, sizes=[num_rows] + [0] * (axis.size - 1), site="hidden")[0]

    def _forward(
        self,
        step: StepInput,
        pool: KvPool,
        own: Span,
        rows: list[Words],
        *,
        future: FutureTokens | None,
    ) -> Tensor:
        """Hidden states of the given rows, one part behind the other, [S, hidden]; of all where another stage follows.

        Args:
            own: rows that this rank computes; `rows` count from its start.
        """
        wants_all = [len(part) for part in rows] == [len(own)]  # in their order
        wanted = None if wants_all else np.concatenate([_NO_ROWS, *rows])
        return self._network.run(
            step,
            pool.layers,
            own=own,
            entering=None if self._previous is None else self._previous.receive(),
            rows=wanted,
            future=future,
        )

    def _blocks_of(self, pool: KvPool) -> Span | None:
        """The ids of this rank's blocks; None where it has all."""
        axis = self._cache_axis
        return None if axis.size == 1 else Span(axis.rank * pool.num_blocks, (axis.rank + 1) * pool.num_blocks)

    def _own_numbers(self, blocks: Words) -> Words:
        """Returns those of the blocks that lie on this rank, as its pool numbers them."""
        own = blocks[self.lie_with(self._rank, blocks).numpy()]
        return np.stack((own[:, 0] % self._num_own(own), own[:, 1]), axis=1)

    def _num_own(self, blocks: Words) -> Words:
        """[n] How many blocks of its tier each rank has."""
        num_host_blocks = max(len(self._pool.host_memory), 1)  # nothing lies there, but there is something to divide by
        return np.where(blocks[:, 1] > 0, num_host_blocks, self._pool.num_blocks).astype(np.int32)

    def _copy(self, pairs: Words, source: Tensor, destination: Tensor, *, copy: LocalCopy) -> None:
        if len(pairs):
            copy_between(pairs, source, destination, copy=copy, axis=self._cache_axis)

    def _make_replays(self, pool: KvPool, *, max_num_blocks: int, num_rows: int | None = None) -> Replays | None:
        """Makes the replays of the decode steps, for a model that is alone. On a GPU only steps of `num_rows` are
        replayed, if that is not None.
        """
        block_size = pool.block_size
        if self._capture is not None:
            return self._network.capture(
                pool.layers, self._capture, block_size=block_size, max_num_blocks=max_num_blocks, num_rows=num_rows
            )
        if self._parallel.num_ranks == 1 and kernel_set(self._device) is KernelSet.CPU:
            return self._network.record(pool.layers, block_size=block_size, max_num_blocks=max_num_blocks)
        return None

    def _make_pool(self, num_blocks: int, *, block_size: int, num_host_blocks: int = 0) -> KvPool:
        return KvPool(
            self.spec,
            shard=self.shard,
            num_blocks=num_blocks,
            block_size=block_size,
            device=self._device,
            num_host_blocks=num_host_blocks,
        )
