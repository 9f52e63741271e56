"""The KV blocks of a group as those of one worker: whole, whatever each rank has of them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headway.core.shard import shard_of
from headway.models.model import DTYPES
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.leader import Leader
from headway.runner.parallel.tensor_channel import TensorChannel
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_message import StepKind, StepMessage, Words


class GroupBlocks:
    """Reads and writes blocks between two steps, at the leader; the other ranks hand it their parts, and take them.

    A block is [num_layers, 2, KV heads, block_size, head_dim], as it lies in a lone worker's pool. No batch of the
    model may be in flight. Lost ranks raise RunnerLostError.

    Args:
        model: its number in the group.
    """

    def __init__(self, shard: ShardRunner, *, group: RankGroup, leader: Leader, model: int) -> None:
        spec = shard.spec
        self._shape = (spec.num_layers, 2, spec.num_kv_heads, shard.block_size, spec.head_dim)
        self._dtype = DTYPES[spec.dtype]
        self._shard = shard
        self._group = group
        self._leader = leader
        self._model = model
        self._channel = None if group.control is None else TensorChannel(group)
        self._parts = [shard_of(spec, group.parallel, rank=rank) for rank in range(group.parallel.num_ranks)]

    @property
    def block_bytes(self) -> int:
        return int(np.prod(self._shape)) * self._dtype.itemsize

    def read(self, places: Sequence[tuple[int, bool]]) -> list[memoryview]:
        """The content of each, [block_bytes]; `places` are (block, whether of the host tier), one at least."""
        blocks = _words(places)
        contents = torch.empty((len(blocks), *self._shape), dtype=self._dtype)
        with self._leader.alone():
            self._announce(StepKind.READ, blocks)
            for rank in range(len(self._parts)):
                here = self._shard.lie_with(rank, blocks)
                part = self._part(contents, rank)
                part[here] = self._fetch(rank, blocks, part[here])
        return [row.data for row in contents.view(len(blocks), -1).view(torch.uint8).numpy()]

    def write(self, places: Sequence[tuple[int, bool]], contents: Sequence[memoryview]) -> None:
        """Sets their content to what `read` gave, here or in another group."""
        blocks = _words(places)
        rows = np.stack([np.frombuffer(content, np.uint8) for content in contents])
        whole = torch.from_numpy(rows).view(self._dtype).view(len(blocks), *self._shape)
        with self._leader.alone():
            self._announce(StepKind.WRITE, blocks)
            for rank in range(len(self._parts)):
                part = self._part(whole, rank)[self._shard.lie_with(rank, blocks)].contiguous()
                self._send(part, rank, blocks)

    def _send(self, part: Tensor, rank: int, blocks: Words) -> None:
        if rank == self._group.rank:
            self._shard.write_part(blocks, part)
            return
        assert self._channel is not None, "there are other ranks"
        self._channel.send(part, rank=rank)

    def _fetch(self, rank: int, blocks: Words, room: Tensor) -> Tensor:
        if rank == self._group.rank:
            return self._shard.read_part(blocks)
        assert self._channel is not None, "there are other ranks"
        return self._channel.receive(room.contiguous(), rank=rank)

    def _part(self, whole: Tensor, rank: int) -> Tensor:
        """A rank's layers and heads of whole blocks."""
        shard = self._parts[rank]
        return whole[:, shard.layers.as_slice(), :, shard.cached_kv_heads.as_slice()]

    def _announce(self, kind: StepKind, blocks: Words) -> None:
        self._leader.tell(StepMessage(kind, blocks=blocks, model=self._model))


def _words(places: Sequence[tuple[int, bool]]) -> Words:
    return np.array(places, np.int32)
