"""Moves blocks from shard to shard, one at a time, and tells every table that shares them."""

from collections.abc import Iterator
from collections.abc import Sequence as Group

from headway.engine.block_pool import BlockPool
from headway.engine.sequence import Sequence
from headway.engine.shard_selector import ShardSelector


class BlockMover:
    """Evens out the shards, given every sequence that has a table, its blocks counted by shard.

    It moves full blocks only: nobody writes them any more. Whoever shares a block has it at the same index.
    """

    def __init__(
        self, sequences: Group[Sequence], *, pool: BlockPool, shard_selector: ShardSelector, block_size: int
    ) -> None:
        self._sequences = sequences
        self._pool = pool
        self._shard_selector = shard_selector
        self._block_size = block_size
        self._loads = pool.num_in_tables_by_shard
        self._offers: dict[tuple[Sequence, int], Iterator[int]] = {}

    def move(self) -> bool:
        """Moves the block that helps most; False if none helps, or can be moved."""
        shards = self._shard_selector.next_move(self._loads, used=self._pool.num_used_by_shard)
        if shards is None:
            return False
        source, destination = shards
        pick = self._pick(source, destination)
        if pick is None:
            return False
        sequence, index = pick
        self._replace(sequence.block_table[index], index=index, destination=destination)
        self._loads[source] -= 1
        self._loads[destination] += 1
        return True

    def _pick(self, source: int, destination: int) -> tuple[Sequence, int] | None:
        """The sequence that has most to gain, and the index of one of its full blocks on `source`."""

        def gain(sequence: Sequence) -> float:
            return self._shard_selector.gain(sequence.num_blocks_by_shard, source=source, destination=destination)

        for sequence in sorted(self._sequences, key=gain, reverse=True):
            offers = self._offers.setdefault((sequence, source), self._full_blocks(sequence, source))
            for index in offers:
                return sequence, index
        return None

    def _full_blocks(self, sequence: Sequence, shard: int) -> Iterator[int]:
        """Indices of those that lie on the shard, the last one first."""
        for index in reversed(range(sequence.num_computed_tokens // self._block_size)):
            if self._pool.free_queue.shard_of(sequence.block_table[index]) == shard:
                yield index

    def _replace(self, block: int, *, index: int, destination: int) -> None:
        place = self._pool.move(block, shard=destination)
        source = self._pool.free_queue.shard_of(block)
        num_holders = int(self._pool.is_pinned(place))
        for sequence in self._sequences:
            table = sequence.block_table
            if index < len(table) and table[index] == block:
                table[index] = place
                sequence.num_blocks_by_shard[source] -= 1
                sequence.num_blocks_by_shard[destination] += 1
                num_holders += 1
        assert num_holders == self._pool.num_references(place), "a table that names the block was not given"
