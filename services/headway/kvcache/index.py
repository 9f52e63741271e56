"""Which workers cache which blocks.

A hash names a block and all that come before it, so the blocks of a prompt that a worker holds from the first one on
are exactly what it can skip. Holders are bits of one integer per hash, so that one pass over a prompt's hashes
measures every worker:

    hashes of a prompt        h0     h1     h2     h3
    holders (bit w: worker)   0b11   0b11   0b01   0b11      worker 0 holds 4 blocks, worker 1 holds 2
"""

from collections.abc import Iterable, Sequence


class PrefixIndex:
    """Block hashes by worker, and workers by block hash."""

    def __init__(self) -> None:
        self._holders: dict[bytes, int] = {}
        self._blocks: dict[str, set[bytes]] = {}
        self._bits: dict[str, int] = {}

    @property
    def num_distinct_blocks(self) -> int:
        return len(self._holders)

    def num_blocks(self, worker_id: str) -> int:
        return len(self._blocks.get(worker_id, ()))

    def store(self, worker_id: str, block_hash: bytes) -> None:
        """The worker holds the block from now on; no change if it did."""
        bit = self._bits.get(worker_id) or self._admit(worker_id)
        self._holders[block_hash] = self._holders.get(block_hash, 0) | bit
        self._blocks[worker_id].add(block_hash)

    def remove(self, worker_id: str, block_hash: bytes) -> None:
        """The worker no longer holds the block; no change if it did not."""
        blocks = self._blocks.get(worker_id)
        if blocks is not None and block_hash in blocks:
            blocks.remove(block_hash)
            self._clear(block_hash, self._bits[worker_id])

    def replace(self, worker_id: str, block_hashes: Iterable[bytes]) -> int:
        """The worker holds exactly these blocks. Returns in how many the index differed."""
        known, actual = self._blocks.get(worker_id, set()), set(block_hashes)
        missing, wrong = actual - known, known - actual
        for block_hash in missing:
            self.store(worker_id, block_hash)
        for block_hash in wrong:
            self.remove(worker_id, block_hash)
        return len(missing) + len(wrong)

    def forget(self, worker_id: str) -> None:
        """The worker is gone, with its blocks."""
        bit = self._bits.pop(worker_id, 0)
        for block_hash in self._blocks.pop(worker_id, ()):
            self._clear(block_hash, bit)

    def lookup(self, block_hashes: Sequence[bytes], *, worker_ids: Iterable[str]) -> dict[str, int]:
        """How many of the leading blocks each of the workers holds; those that hold none are left out."""
        bits = {worker_id: bit for worker_id in worker_ids if (bit := self._bits.get(worker_id))}
        num_leading = self._measure(block_hashes, sum(bits.values()))
        return {worker_id: num for worker_id, bit in bits.items() if (num := num_leading.get(bit, 0))}

    def check_integrity(self) -> None:
        """Asserts that both directions agree and that no empty entry is kept."""
        assert self._bits.keys() == self._blocks.keys()
        assert all(bit.bit_count() == 1 for bit in self._bits.values())
        assert sum(self._bits.values()).bit_count() == len(self._bits), "two workers share a bit"
        assert all(self._holders.values()), "a block without a holder is kept"
        for worker_id, bit in self._bits.items():
            assert {block for block, holders in self._holders.items() if holders & bit} == self._blocks[worker_id]

    def _measure(self, block_hashes: Sequence[bytes], among: int) -> dict[int, int]:
        """Leading blocks that each worker's bit in `among` has."""
        num_leading: dict[int, int] = {}
        for num_before, block_hash in enumerate(block_hashes):
            holders = among & self._holders.get(block_hash, 0)
            _note(num_leading, among & ~holders, num_before)
            among = holders
            if not among:
                return num_leading
        _note(num_leading, among, len(block_hashes))
        return num_leading

    def _admit(self, worker_id: str) -> int:
        taken = sum(self._bits.values())
        bit = ~taken & (taken + 1)  # the lowest one that is free
        self._bits[worker_id] = bit
        self._blocks[worker_id] = set()
        return bit

    def _clear(self, block_hash: bytes, bit: int) -> None:
        holders = self._holders[block_hash] & ~bit
        if holders:
            self._holders[block_hash] = holders
        else:
            del self._holders[block_hash]


def _note(num_leading: dict[int, int], bits: int, num_blocks: int) -> None:
    """Writes `num_blocks` for each of the bits."""
    while bits:
        lowest = bits & -bits
        num_leading[lowest] = num_blocks
        bits ^= lowest
