"""The blocks of one tier that nobody refers to, by shard.

Shard s of S has the blocks [s * P, (s + 1) * P). A free block holds nothing; a cached one holds content with a name,
which gives way, least recently used first, to whoever needs the room.
"""

from collections import OrderedDict


class FreeBlockQueue:
    """Hands out blocks, and takes back those that are no longer referenced.

    Attributes:
        num_available: free and cached blocks of all shards.
        free: of each shard, the one taken next at the end.
        cached: of each shard, least recently used first.
    """

    def __init__(self, num_blocks: int, *, num_shards: int) -> None:
        """Starts with all of `num_blocks` blocks free. `num_shards` divides their number."""
        self._shard_size = size = num_blocks // num_shards
        self.num_available = num_blocks
        self.free = [list(range((shard + 1) * size - 1, shard * size - 1, -1)) for shard in range(num_shards)]
        self.cached: list[OrderedDict[int, None]] = [OrderedDict() for _ in self.free]

    @property
    def num_free(self) -> int:
        return sum(map(len, self.free))

    @property
    def num_cached(self) -> int:
        return sum(map(len, self.cached))

    @property
    def widest(self) -> int:
        """The shard with most room."""
        return max(range(len(self.free)), key=self.num_available_in)

    def shard_of(self, block: int) -> int:
        return block // self._shard_size

    def num_available_in(self, shard: int) -> int:
        return len(self.free[shard]) + len(self.cached[shard])

    def take(self, shard: int) -> tuple[int, bool]:
        """A block, and whether it still holds content; of the shard, or where that is full, of the one with most room.

        There must be one available somewhere.
        """
        free = self.free[shard]
        if not (free or self.cached[shard]):
            shard = self.widest
            free = self.free[shard]
        self.num_available -= 1
        if free:
            return free.pop(), False
        block, _ = self.cached[shard].popitem(last=False)
        return block, True

    def add_free(self, block: int) -> None:
        self.free[block // self._shard_size].append(block)
        self.num_available += 1

    def add_cached(self, block: int) -> None:
        """Keeps its content as the most recently used."""
        self.cached[block // self._shard_size][block] = None
        self.num_available += 1

    def remove_cached(self, block: int) -> None:
        """Takes a cached block out of the queue because its content is referenced again."""
        del self.cached[block // self._shard_size][block]
        self.num_available -= 1

    def touch(self, block: int) -> None:
        """Marks content, if it is cached, as just used."""
        cached = self.cached[block // self._shard_size]
        if block in cached:
            cached.move_to_end(block)

    def check_integrity(self) -> None:
        """Asserts that every block lies in its own shard, and that all are counted."""
        shards = [{*free, *cached} for free, cached in zip(self.free, self.cached, strict=True)]
        assert all(self.shard_of(block) == shard for shard, blocks in enumerate(shards) for block in blocks)
        assert self.num_available == self.num_free + self.num_cached, "available blocks are miscounted"
