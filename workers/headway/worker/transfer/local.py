"""This worker's own blocks, read and written in its engine's thread between two steps."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import partial
from typing import TypeVar

from headway.core.errors import FailedPreconditionError
from headway.engine.engine import Engine
from headway.engine.handover import NamedBlock
from headway.worker.loaded_model import LoadedModel
from headway.worker.transfer.block import BlockContent
from headway.worker.transfer.layout import BlockLayout

T = TypeVar("T")

# What one call copies at most, so that it delays the next step by a few milliseconds.
_PIECE_BYTES = 4 << 20
_PIECE_BLOCKS = 128


class LocalBlocks:
    """A `BlockSource` and a `BlockSink`.

    Full blocks do not change, so they can be read while their sequences go on; those that are evicted meanwhile are
    left out.

    Raises:
        FailedPreconditionError: the worker is one of a group, whose blocks lie on all of its workers.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        order, spec = loaded.order, loaded.runner.spec
        if order.is_in_group:
            raise FailedPreconditionError(
                f"The blocks of {order.group_id} lie on {order.parallel.num_ranks} workers; only those of a worker "
                "that serves alone can be exchanged."
            )
        self.layout = BlockLayout(
            model=order.model,
            directory=str(order.directory),
            quantization=order.quantization,
            dtype=spec.dtype,
            block_size=order.block_size,
            num_layers=spec.num_layers,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
        )
        self._thread = loaded.thread
        self._pool = loaded.runner.pool
        self._metrics = loaded.transfers

    @property
    def block_bytes(self) -> int:
        return self._pool.block_bytes

    async def read(self, names: Sequence[bytes], *, layout: BlockLayout) -> AsyncGenerator[list[BlockContent], None]:
        """See `BlockSource.read`."""
        self.layout.check_equal(layout)
        for piece in self._pieces(names):
            blocks = await self._thread.call(partial(self._read, piece))
            self._metrics.observe_read(len(blocks), num_bytes=len(blocks) * self.block_bytes)
            yield blocks

    async def missing(self, chains: Sequence[Sequence[bytes]], *, num_sequences: int) -> list[NamedBlock]:
        """See `Handover.missing`."""
        return await self._thread.call(lambda engine: engine.handover.missing(chains, num_sequences=num_sequences))

    async def write(self, blocks: Sequence[tuple[NamedBlock, BlockContent]]) -> int:
        """See `BlockSink.write`."""
        num_taken = 0
        for piece in self._pieces(blocks):
            num_taken += await self._thread.call(partial(self._write, piece))
        self._metrics.observe_write(num_taken, num_bytes=num_taken * self.block_bytes)
        return num_taken

    def _pieces(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        size = max(1, min(_PIECE_BLOCKS, _PIECE_BYTES // self.block_bytes))
        return (items[start : start + size] for start in range(0, len(items), size))

    def _read(self, names: Sequence[bytes], engine: Engine) -> list[BlockContent]:
        return [
            BlockContent(place.name, self._pool.read_block(place.block, on_host=place.is_on_host))
            for place in engine.handover.locate(names)
        ]

    def _write(self, blocks: Sequence[tuple[NamedBlock, BlockContent]], engine: Engine) -> int:
        num_taken = 0
        for named, arrived in blocks:
            block = engine.handover.admit(named)
            if block is not None:
                self._pool.write_block(block, arrived.content)
                num_taken += 1
        return num_taken
