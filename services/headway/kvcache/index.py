"""The prefix index: which holders cache which blocks. A holder is a worker, or one model of a worker that has several.

A hash names a block and all that come before it, so the blocks of a prompt that a holder has from the first one on
are exactly what it can skip. Holders are bits of one integer per hash, so that one pass over a prompt's hashes
measures every holder:

    hashes of a prompt        h0     h1     h2     h3
    holders (bit w: holder)   0b11   0b11   0b01   0b11      holder 0 has 4 blocks, holder 1 has 2
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

H = TypeVar("H", bound=Hashable)


class PrefixIndex(Generic[H]):
    """Block hashes by holder, and holders by block hash."""

    def __init__(self) -> None:
        self._holders: dict[bytes, int] = {}
        self._blocks: dict[H, set[bytes]] = {}
        self._bits: dict[H, int] = {}

    @property
    def num_distinct_blocks(self) -> int:
        return len(self._holders)

    def num_blocks(self, holder: H) -> int:
        return len(self._blocks.get(holder, ()))

    def store(self, holder: H, block_hash: bytes) -> None:
        """Records that the holder has the block; changes nothing if that was known."""
        bit = self._bits.get(holder) or self._admit(holder)
        self._holders[block_hash] = self._holders.get(block_hash, 0) | bit
        self._blocks[holder].add(block_hash)

    def remove(self, holder: H, block_hash: bytes) -> None:
        """Records that the holder no longer has the block; changes nothing if that was known."""
        blocks = self._blocks.get(holder)
        if blocks is not None and block_hash in blocks:
            blocks.remove(block_hash)
            self._clear(block_hash, self._bits[holder])

    def replace(self, holder: H, block_hashes: Iterable[bytes]) -> int:
        """Records that the holder has exactly these blocks. Returns in how many the index differed."""
        known, actual = self._blocks.get(holder, set()), set(block_hashes)
        missing, wrong = actual - known, known - actual
        for block_hash in missing:
            self.store(holder, block_hash)
        for block_hash in wrong:
            self.remove(holder, block_hash)
        return len(missing) + len(wrong)

    def forget(self, holder: H) -> None:
        """Forgets a holder that is gone, with its blocks."""
        bit = self._bits.pop(holder, 0)
        for block_hash in self._blocks.pop(holder, ()):
            self._clear(block_hash, bit)

    def lookup(self, block_hashes: Sequence[bytes], *, holders: Iterable[H]) -> dict[H, int]:
        """Returns how many of the leading blocks each holder has; those that have none are left out."""
        bits = {holder: bit for holder in holders if (bit := self._bits.get(holder))}
        num_leading = self._measure(block_hashes, sum(bits.values()))
        return {holder: num for holder, bit in bits.items() if (num := num_leading.get(bit, 0))}

    def check_integrity(self) -> None:
        """Asserts that both directions agree and that no empty entry is kept."""
        assert self._bits.keys() == self._blocks.keys()
        assert all(bit.bit_count() == 1 for bit in self._bits.values())
        assert sum(self._bits.values()).bit_count() == len(self._bits), "two holders share a bit"
        assert all(self._holders.values()), "a block without a holder is kept"
        for holder, bit in self._bits.items():
            assert {block for block, holders in self._holders.items() if holders & bit} == self._blocks[holder]

    def _measure(self, block_hashes: Sequence[bytes], among: int) -> dict[int, int]:
        """Leading blocks that each holder's bit in `among` has."""
        num_leading: dict[int, int] = {}
        for num_before, block_hash in enumerate(block_hashes):
            holders = among & self._holders.get(block_hash, 0)
            _note(num_leading, among & ~holders, num_before)
            among = holders
            if not among:
                return num_leading
        _note(num_leading, among, len(block_hashes))
        return num_leading

    def _admit(self, holder: H) -> int:
        taken = sum(self._bits.values())
        bit = ~taken & (taken + 1)  # the lowest one that is free
        self._bits[holder] = bit
        self._blocks[holder] = set()
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
