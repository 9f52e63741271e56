"""Bringing blocks from a source into a sink."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from headway.worker.transfer.block import BlockSink, BlockSource


@dataclass(frozen=True, slots=True)
class Fetched:
    """The number of blocks and bytes that a transfer brought."""

    num_blocks: int = 0
    num_bytes: int = 0

    def __add__(self, other: "Fetched") -> "Fetched":
        return Fetched(self.num_blocks + other.num_blocks, self.num_bytes + other.num_bytes)


async def fetch(
    chains: Sequence[Sequence[bytes]], *, source: BlockSource, sink: BlockSink, num_sequences: int = 0
) -> Fetched:
    """Brings the blocks of the chains that the sink has not, as far as the source has them.

    Args:
        chains: names of consecutive blocks, from the first of a sequence.
        num_sequences: that are to start with them at once.

    Raises:
        FailedPreconditionError: source and sink cannot exchange blocks.
        ResourceExhaustedError: the sink has no room.
        HeadwayError: the source is lost or refuses. What has come stays.
    """
    missing = {block.name: block for block in await sink.missing(chains, num_sequences=num_sequences)}
    fetched = Fetched()
    if not missing:
        return fetched
    async with aclosing(source.read(list(missing), layout=sink.layout)) as pieces:
        async for piece in pieces:
            num_taken = await sink.write([(missing[block.name], block) for block in piece])
            fetched += Fetched(num_taken, num_taken * len(piece[0].content) if piece else 0)
    return fetched
