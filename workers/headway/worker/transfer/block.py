"""Blocks under way, and what gives and takes them."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.engine.kv_transfer import NamedBlock
from headway.worker.transfer.layout import BlockLayout


@dataclass(frozen=True, slots=True)
class BlockContent:
    """A block's keys and values, [block_bytes]."""

    name: bytes
    content: memoryview


class BlockSource(Protocol):
    """A source of KV blocks: another worker, whatever connects the two."""

    def read(self, names: Sequence[bytes], *, layout: BlockLayout) -> AsyncGenerator[list[BlockContent], None]:
        """The blocks that are there, in this order, some at a time.

        Raises:
            FailedPreconditionError: they lie there in another layout.
            HeadwayError: the source is lost or refuses.
        """


class BlockSink(Protocol):
    """A destination of KV blocks."""

    @property
    def layout(self) -> BlockLayout: ...

    async def missing(self, chains: Sequence[Sequence[bytes]], *, num_sequences: int) -> list[NamedBlock]:
        """Returns the blocks of the chains that are missing here; see `KvTransfer.missing`."""

    async def write(self, blocks: Sequence[tuple[NamedBlock, BlockContent]]) -> int:
        """Returns how many of the blocks it took; those that it had, or has no room for, it did not."""
