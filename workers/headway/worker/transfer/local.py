"""Reads and writes this worker's own blocks, in its engine's thread between two steps."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import partial
from typing import TypeVar

from headway.core.engine_kind import Feature
from headway.engine.engine import Engine
from headway.engine.kv_transfer import NamedBlock
from headway.worker.loaded_model import LoadedModel
from headway.worker.transfer.block import BlockContent
from headway.worker.transfer.layout import BlockLayout

T = TypeVar("T")

# What one call copies at most, so that it delays the next step by a few milliseconds.
_PIECE_BYTES = 4 << 20
_PIECE_BLOCKS = 128


class LocalBlocks:
    """This worker's own blocks, as a `BlockSource` and a `BlockSink`.

    Full blocks do not change, so they can be read while their sequences go on; those that are evicted meanwhile are
    left out. Blocks are whole, also where the worker leads a group: its other ranks hand over their parts.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        own = loaded.own_engine(Feature.BLOCK_TRANSFER)
        order, spec = loaded.order, own.runner.spec
        self.layout = BlockLayout(
            model=order.model,
            directory=order.directory,
            quantization=order.quantization,
            dtype=spec.dtype,
            block_size=order.block_size,
            num_layers=spec.num_layers,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
        )
        self._thread = own.thread
        self._blocks = own.runner.blocks
        self._metrics = loaded.transfers

    @property
    def block_bytes(self) -> int:
        return self._blocks.block_bytes

    async def read(self, names: Sequence[bytes], *, layout: BlockLayout) -> AsyncGenerator[list[BlockContent], None]:
        """Reads blocks of this worker; see `BlockSource.read`."""
        self.layout.check_equal(layout)
        for piece in self._pieces(names):
            blocks = await self._thread.call(partial(self._read, piece), on_device=True)
            self._metrics.observe_read(len(blocks), num_bytes=len(blocks) * self.block_bytes)
            yield blocks

    async def missing(self, chains: Sequence[Sequence[bytes]], *, num_sequences: int) -> list[NamedBlock]:
        """Returns the blocks that are missing here; see `KvTransfer.missing`."""
        return await self._thread.call(lambda engine: engine.kv_transfer.missing(chains, num_sequences=num_sequences))

    async def write(self, blocks: Sequence[tuple[NamedBlock, BlockContent]]) -> int:
        """Writes blocks to this worker's pool; see `BlockSink.write`."""
        num_taken = 0
        for piece in self._pieces(blocks):
            num_taken += await self._thread.call(partial(self._write, piece), on_device=True)
        self._metrics.observe_write(num_taken, num_bytes=num_taken * self.block_bytes)
        return num_taken

    def _pieces(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        size = max(1, min(_PIECE_BLOCKS, _PIECE_BYTES // self.block_bytes))
        return (items[start : start + size] for start in range(0, len(items), size))

    def _read(self, names: Sequence[bytes], engine: Engine) -> list[BlockContent]:
        engine.settle()
        places = engine.kv_transfer.locate(names)
        if not places:
            return []
        contents = self._blocks.read([(place.block, place.is_on_host) for place in places])
        return [BlockContent(place.name, content) for place, content in zip(places, contents, strict=True)]

    def _write(self, blocks: Sequence[tuple[NamedBlock, BlockContent]], engine: Engine) -> int:
        engine.settle()
        admitted = [(engine.kv_transfer.admit(named), arrived.content) for named, arrived in blocks]
        taken = [(block, content) for block, content in admitted if block is not None]
        if taken:
            places, contents = zip(*taken, strict=True)
            self._blocks.write([(block, False) for block in places], contents)
        return len(taken)
