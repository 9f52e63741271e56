"""A block manager that reserves a contiguous range for each sequence when it is admitted, as Orca does."""

# ruff: noqa: ARG002 - the engine tells more than a fixed reservation needs to know

from collections.abc import Iterable

from benchmarks.waste.buddy import BuddyAllocator
from benchmarks.waste.policy import Policy, reserved_tokens
from headway.engine.block_manager import BlockManager
from headway.engine.sequence import Sequence


class ContiguousBlocks(BlockManager):
    """Takes the place of paging in the same engine: sequences never grow, share or give way; they wait for a range."""

    def __init__(self, num_blocks: int, *, block_size: int, policy: Policy, max_model_len: int) -> None:
        super().__init__(num_blocks, block_size=block_size, enable_prefix_cache=False)
        self._policy = policy
        self._max_model_len = max_model_len
        self._buddies = BuddyAllocator(num_blocks)
        self._starts: dict[Sequence, int] = {}
        self._num_taken = 0
        self._candidate: Sequence | None = None  # whose prefix was looked up last: the one to be admitted

    @property
    def num_available_blocks(self) -> int:
        return self.num_blocks - self._num_taken

    @property
    def num_free_blocks(self) -> int:
        return self.num_available_blocks

    def find_prefix(self, sequence: Sequence) -> list[bytes]:
        self._candidate = sequence
        return []

    def fits(self, *, prefix: list[bytes], num_tokens: int, num_reserved: int) -> bool:
        """Whether there is a range for the sequence whose prefix was looked up last."""
        assert self._candidate is not None
        return self._buddies.fits(self._num_blocks_for(self._candidate))

    def adopt(self, sequence: Sequence, *, prefix: list[bytes]) -> None:
        """Reserves the sequence's range; its table names all of it from the start."""
        num_blocks = self._num_blocks_for(sequence)
        start = self._buddies.allocate(num_blocks)
        assert start is not None, "a range that fits is not there"
        self._starts[sequence] = start
        self._num_taken += self._buddies.size_of(start)
        sequence.block_table.extend(range(start, start + num_blocks))

    def num_blocks_to_grow(self, sequence: Sequence, *, num_tokens: int) -> int:
        return 0

    def grow(self, sequence: Sequence, *, num_tokens: int) -> bool:
        assert num_tokens <= len(sequence.block_table) * self.block_size, "a range was too short"
        return True

    def free(self, sequence: Sequence) -> None:
        start = self._starts.pop(sequence, None)
        if start is not None:
            self._num_taken -= self._buddies.size_of(start)
            self._buddies.release(start)
        del sequence.block_table[:]
        sequence.num_computed_tokens = 0

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        assert {sequence for sequence in sequences if sequence.block_table} == self._starts.keys()
        assert self._num_taken == sum(self._buddies.size_of(start) for start in self._starts.values())

    def _num_blocks_for(self, sequence: Sequence) -> int:
        num_tokens = reserved_tokens(sequence, self._policy, max_model_len=self._max_model_len)
        return -(-num_tokens // self.block_size)
