"""The pool's books: which sequences hold which KV blocks, and which blocks can be shared by content.

A block is in exactly one of three states (dissertation 5.4.2; the cached one is ours):

    free        has no content             -> referenced, when taken
    referenced  is in one table or more    -> cached or free, when its last reference is dropped
    cached      holds content with a name  -> referenced, when adopted or evicted

Only full, computed blocks are published, and nobody writes into a full block: a shared block is never written.
Publishing follows the computation, so whoever adopts a block finds its keys and values there.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as BlockTable

from headway.core.block_hash import extend_block_hashes
from headway.engine.events import BlockEventLog
from headway.engine.sequence import Sequence

_NO_PARENT = b""


class BlockManager:
    """Hands out blocks on demand, counts references and keeps unreferenced content until its room is needed.

    Every operation takes time proportional to the blocks it names, whatever the size of the pool.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int = 16,
        enable_prefix_cache: bool = True,
        salt: bytes = b"",
        events: BlockEventLog | None = None,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.events = events or BlockEventLog()
        self._enable_prefix_cache = enable_prefix_cache
        self._salt = salt
        self._num_references = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # unreferenced, least recently used first

    @property
    def num_free_blocks(self) -> int:
        """Blocks without content."""
        return len(self._free)

    @property
    def num_cached_blocks(self) -> int:
        """Blocks that hold content for whoever comes next, and can be evicted."""
        return len(self._cached)

    @property
    def num_available_blocks(self) -> int:
        return len(self._free) + len(self._cached)

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - self.num_available_blocks

    def find_prefix(self, sequence: Sequence) -> list[int]:
        """Blocks that hold the sequence's longest cached prefix, its last token excluded: that one gives logits."""
        prefix: list[int] = []
        if not self._enable_prefix_cache or sequence.owes_prompt_logprobs:
            return prefix
        num_usable = (len(sequence) - 1) // self.block_size
        for block_hash in self._hashes(sequence)[:num_usable]:
            block = self._block_of.get(block_hash)
            if block is None:
                break
            prefix.append(block)
        return prefix

    def fits(self, *, prefix: list[int], num_tokens: int, num_reserved: int) -> bool:
        """Whether `num_tokens`, the cached `prefix` among them, find room that leaves `num_reserved` blocks over."""
        num_revived = sum(1 for block in prefix if self._num_references[block] == 0)
        num_new = self._num_blocks_of(num_tokens) - len(prefix)
        return num_new + num_revived + num_reserved <= self.num_available_blocks

    def adopt(self, sequence: Sequence, *, prefix: list[int]) -> None:
        """Starts the table of a sequence with shared blocks, whose tokens count as computed."""
        assert not sequence.block_table, f"{sequence.request_id} already holds blocks"
        for block in prefix:
            if self._num_references[block] == 0:
                del self._cached[block]
            self._num_references[block] += 1
        sequence.block_table.extend(prefix)
        sequence.num_published_blocks = len(prefix)
        sequence.num_computed_tokens = len(prefix) * self.block_size

    def grow(self, sequence: Sequence, *, num_tokens: int) -> bool:
        """Extends the table to hold `num_tokens`; changes nothing and returns False if the blocks are not there."""
        num_new = self._num_blocks_of(num_tokens) - len(sequence.block_table)
        if num_new <= 0:
            return True
        if num_new > self.num_available_blocks:
            return False
        sequence.block_table.extend([self._take() for _ in range(num_new)])
        return True

    def publish(self, sequence: Sequence) -> None:
        """Offers the blocks that have become full and computed to every later sequence."""
        first, end = sequence.num_published_blocks, sequence.num_computed_tokens // self.block_size
        if first >= end or not self._enable_prefix_cache:
            return
        hashes = self._hashes(sequence)
        for index in range(first, end):
            block, block_hash = sequence.block_table[index], hashes[index]
            if block_hash in self._block_of:
                continue  # a twin, computed at the same time, was published first; this one stays private
            self._hash_of[block] = block_hash
            self._block_of[block_hash] = block
            self.events.record_stored(block_hash, parent_hash=hashes[index - 1] if index else _NO_PARENT)
        sequence.num_published_blocks = end

    def free(self, sequence: Sequence) -> None:
        """Drops the sequence's references, last block first, so that a prefix outlives what follows it."""
        for block in reversed(sequence.block_table):
            self._num_references[block] -= 1
            if self._num_references[block] == 0:
                self._release(block)
        sequence.block_table.clear()
        sequence.num_published_blocks = 0
        sequence.num_computed_tokens = 0

    def check_integrity(self, tables: Iterable[BlockTable[int]]) -> None:
        """Asserts that the books are right, given every table in use. Takes time proportional to the pool."""
        counts = Counter(block for table in tables for block in table)
        assert self._num_references == [counts[block] for block in range(self.num_blocks)], "wrong references"
        states = Counter([*self._free, *self._cached, *counts])
        assert states == Counter(range(self.num_blocks)), "a block is lost or in two states"
        named = {block: block_hash for block, block_hash in enumerate(self._hash_of) if block_hash is not None}
        assert named == {block: block_hash for block_hash, block in self._block_of.items()}, "wrong names"
        assert named.keys() >= self._cached.keys(), "a cached block has no name"
        assert named.keys().isdisjoint(self._free), "a free block has a name"

    def _take(self) -> int:
        block = self._free.pop() if self._free else self._evict()
        self._num_references[block] = 1
        return block

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        block_hash = self._hash_of[block]
        assert block_hash is not None, f"cached block {block} has no name"
        self._hash_of[block] = None
        del self._block_of[block_hash]
        self.events.record_removed(block_hash)
        return block

    def _release(self, block: int) -> None:
        if self._hash_of[block] is None:
            self._free.append(block)
        else:
            self._cached[block] = None

    def _hashes(self, sequence: Sequence) -> list[bytes]:
        extend_block_hashes(sequence.block_hashes, sequence.token_ids, block_size=self.block_size, salt=self._salt)
        return sequence.block_hashes

    def _num_blocks_of(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
