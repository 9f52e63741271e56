"""The KV blocks of a group as those of one worker: whole, whatever each rank has of them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.shard import shard_of
from headway.models.model import DTYPES
from headway.runner.parallel.announcer import Announcer
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.parcels import Parcels
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_message import StepKind, StepMessage, Words


class GroupBlocks:
    """Reads and writes blocks between two steps, at the leader; the other ranks hand it their parts, and take them.

    A block is [num_layers, 2, KV heads, block_size, head_dim], as it lies in a lone worker's pool. No batch may be in
    flight. Lost ranks raise RunnerLostError.
    """

    def __init__(self, shard: ShardRunner, *, group: RankGroup, announcer: Announcer | None) -> None:
        spec = shard.spec
        self._shape = (spec.num_layers, 2, spec.num_kv_heads, shard.block_size, spec.head_dim)
        self._dtype = DTYPES[spec.dtype]
        self._shard = shard
        self._group = group
        self._announcer = announcer
        self._parcels = None if announcer is None else Parcels(group)
        self._parts = [shard_of(spec, group.parallel, rank=rank) for rank in range(group.parallel.num_ranks)]

    @property
    def block_bytes(self) -> int:
        return int(np.prod(self._shape)) * self._dtype.itemsize

    def read(self, blocks: Words) -> list[NDArray[np.uint8]]:
        """The content of each, [block_bytes]; `blocks` is [n, 2], n > 0: (block, whether of the host tier)."""
        self._announce(StepKind.READ, blocks)
        contents = torch.empty((len(blocks), *self._shape), dtype=self._dtype)
        for rank in range(len(self._parts)):
            here = self._shard.lie_with(rank, blocks)
            part = self._part(contents, rank)
            part[here] = self._fetch(rank, blocks, part[here])
        return list(contents.view(len(blocks), -1).view(torch.uint8).numpy())

    def write(self, blocks: Words, contents: Sequence[NDArray[np.uint8]]) -> None:
        """Sets their content to what `read` gave, here or in another group."""
        self._announce(StepKind.WRITE, blocks)
        whole = torch.from_numpy(np.stack(contents)).view(self._dtype).view(len(blocks), *self._shape)
        for rank in range(len(self._parts)):
            part = self._part(whole, rank)[self._shard.lie_with(rank, blocks)].contiguous()
            if rank == self._group.rank:
                self._shard.write_part(blocks, part)
            elif self._parcels is not None:
                self._parcels.send(part, rank=rank)

    def _fetch(self, rank: int, blocks: Words, room: Tensor) -> Tensor:
        if rank == self._group.rank:
            return self._shard.read_part(blocks)
        assert self._parcels is not None, "there are other ranks"
        return self._parcels.receive(room.contiguous(), rank=rank)

    def _part(self, whole: Tensor, rank: int) -> Tensor:
        """A rank's layers and heads of whole blocks."""
        shard = self._parts[rank]
        return whole[:, shard.layers.as_slice(), :, shard.cached_kv_heads.as_slice()]

    def _announce(self, kind: StepKind, blocks: Words) -> None:
        if self._announcer is not None:
            self._announcer.announce(StepMessage(kind, blocks=blocks))
