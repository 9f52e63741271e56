"""The bookkeeping of the host tier: blocks in host memory behind the device's pool (dissertation 5.4.5, ours for
prefixes).

A host block is free, referenced (a swapped sequence, or a copy under way, needs it) or cached: unreferenced content
with a name, which gives way, least recently used first, to whoever needs the room.
"""

from collections import Counter
from collections.abc import Iterable

from headway.engine.free_block_queue import FreeBlockQueue


class HostTier:
    """Hands out host blocks and finds their content by name. It moves nothing itself."""

    def __init__(self, num_blocks: int, *, num_shards: int = 1) -> None:
        """`num_blocks` may be 0: no host tier. `num_shards` divides it."""
        self.num_blocks = num_blocks
        self.free_queue = FreeBlockQueue(num_blocks, num_shards=num_shards)
        self._num_references = [0] * num_blocks
        self._name_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}

    @property
    def num_free_blocks(self) -> int:
        return self.free_queue.num_free

    @property
    def num_cached_blocks(self) -> int:
        """Blocks whose content is kept for whoever comes next, and can be dropped."""
        return self.free_queue.num_cached

    @property
    def num_available_blocks(self) -> int:
        return self.free_queue.num_available

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - self.num_available_blocks

    def find(self, name: bytes) -> int | None:
        """The block that holds the named content."""
        return self._block_of.get(name)

    def name_of(self, block: int) -> bytes | None:
        return self._name_of[block]

    def take(self, shard: int = 0) -> tuple[int, bytes | None]:
        """A block with one reference, and the name of the content that was dropped for it.

        It is one of the shard, or where that is full, of the one with most room.
        """
        block, is_cached = self.free_queue.take(shard)
        dropped = None
        if is_cached:
            dropped = self._name_of[block]
            assert dropped is not None, f"cached host block {block} has no name"
            del self._block_of[dropped]
            self._name_of[block] = None
        self._num_references[block] = 1
        return block, dropped

    def label(self, block: int, name: bytes) -> None:
        """Names the block's content, which no other host block holds."""
        assert name not in self._block_of, "two host blocks hold the same content"
        self._name_of[block] = name
        self._block_of[name] = block

    def reference(self, block: int) -> None:
        if self._num_references[block] == 0:
            self.free_queue.remove_cached(block)
        self._num_references[block] += 1

    def drop(self, block: int) -> None:
        """Drops one reference; named content stays behind as long as there is room."""
        self._num_references[block] -= 1
        if self._num_references[block] == 0:
            if self._name_of[block] is None:
                self.free_queue.add_free(block)
            else:
                self.free_queue.add_cached(block)

    def touch(self, block: int) -> None:
        """Marks cached content as just used."""
        self.free_queue.touch(block)

    def check_integrity(self, references: Iterable[int]) -> None:
        """Asserts that the bookkeeping is right, given every reference there is. Takes time proportional to the
        tier."""
        counts = Counter(references)
        assert self._num_references == [counts[block] for block in range(self.num_blocks)], "wrong host references"
        free = [block for blocks in self.free_queue.free for block in blocks]
        cached = [block for blocks in self.free_queue.cached for block in blocks]
        states = Counter([*free, *cached, *counts])
        assert states == Counter(range(self.num_blocks)), "a host block is lost or in two states"
        named = {block: name for block, name in enumerate(self._name_of) if name is not None}
        assert named == {block: name for name, block in self._block_of.items()}, "wrong host names"
        assert named.keys() >= set(cached), "a cached host block has no name"
        assert named.keys().isdisjoint(free), "a free host block has a name"
        self.free_queue.check_integrity()
