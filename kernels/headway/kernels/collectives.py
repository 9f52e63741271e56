"""Collectives between processes of one host, in C++, through memory that they share."""

from collections.abc import Sequence
from ctypes import Array, addressof, c_int64
from struct import Struct

import torch
from torch import Tensor

from headway.kernels.library import chosen_isa, load_library

MAX_RANKS = 64  # as in csrc/cpu/collectives.cpp

_FLAG_BYTES = 128  # as in csrc/cpu/segment.h
_DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1}  # as in csrc/cpu/abi.h

# The operand structs, field by field, as in cpu.py; each begins with a seat.
_pack_sum = Struct("P5q qPq").pack
_pack_gather = Struct("P5q 3Pq").pack
_pack_swap = Struct("P5q 4P").pack


class AbsentRankError(RuntimeError):
    """Raised where another rank has died, or did not come in time."""


def segment_bytes(size: int, *, slot_bytes: int) -> int:
    """Bytes of the memory that `size` ranks share; it must be all zeros when the first of them comes."""
    return size * (_FLAG_BYTES + 2 * slot_bytes)


class SegmentCollectives:
    """The collectives of one rank over a shared segment. All ranks must call the same operations in the same order.

    Every operation lets go of the GIL, and raises AbsentRankError where another rank has died or does not come within
    the deadline; the segment is of no use after that.

    Args:
        address: of the segment in this process, `segment_bytes` long.
        size: ranks, at most `MAX_RANKS`.
        slot_bytes: what a rank hands over at once, a multiple of 128; longer tensors go in pieces.
        lock_file: descriptor of a file in which every rank r holds a lock on byte r while it lives (`fcntl.lockf`).
        timeout_s: the deadline of each piece.
    """

    def __init__(
        self, address: int, *, rank: int, size: int, slot_bytes: int, lock_file: int, timeout_s: float
    ) -> None:
        library = load_library(chosen_isa())
        self.rank = rank
        self.size = size
        self._seat = (address, rank, size, slot_bytes, lock_file, int(timeout_s * 1e6))
        self._timeout_s = timeout_s
        self._sum = library.headway_all_reduce
        self._gather = library.headway_gather
        self._swap = library.headway_all_to_all

    def all_reduce(self, x: Tensor) -> None:
        """Sums x over the ranks, in place; float32 or bfloat16, contiguous. Bit for bit the same on every rank."""
        assert x.is_contiguous(), "a sum in place"
        self._check(self._sum(_pack_sum(*self._seat, _DTYPE_CODES[x.dtype], x.data_ptr(), x.numel())))

    def gather(self, x: Tensor, outs: Sequence[Tensor]) -> None:
        """Takes every other rank's x into `outs[rank]`, contiguous and of its size; the own one is left alone."""
        self._take(x, _sizes(outs), _addresses(outs), is_for_all=False)

    def give(self, x: Tensor, num_bytes: Sequence[int]) -> None:
        """Gives x to the rank that calls `gather`. `num_bytes` are those of every rank's x."""
        self._take(x, _numbers(num_bytes), None, is_for_all=False)

    def all_gather(self, x: Tensor, outs: Sequence[Tensor]) -> None:
        """Gathers every rank's x at every rank; see `gather`."""
        self._take(x, _sizes(outs), _addresses(outs), is_for_all=True)

    def all_to_all(self, parts: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
        """Hands `parts[rank]` to every other rank, and takes what it has for this one into `outs[rank]`."""
        tables = (_addresses(parts), _sizes(parts), _addresses(outs), _sizes(outs))
        self._check(self._swap(_pack_swap(*self._seat, *map(addressof, tables))))

    def _take(self, x: Tensor, sizes: Array[c_int64], outs: Array[c_int64] | None, *, is_for_all: bool) -> None:
        assert x.is_contiguous(), "its bytes are handed over"
        to = 0 if outs is None else addressof(outs)
        self._check(self._gather(_pack_gather(*self._seat, x.data_ptr(), addressof(sizes), to, is_for_all)))

    def _check(self, code: int) -> None:
        if code > 0:
            raise AbsentRankError(f"rank {code - 1} did not come within {self._timeout_s:g} s")
        if code < 0:
            raise AbsentRankError(f"rank {-code - 1} has gone")


def _numbers(numbers: Sequence[int]) -> Array[c_int64]:
    return (c_int64 * len(numbers))(*numbers)


def _addresses(tensors: Sequence[Tensor]) -> Array[c_int64]:
    assert all(tensor.is_contiguous() for tensor in tensors), "their bytes are handed over"
    return _numbers([tensor.data_ptr() for tensor in tensors])


def _sizes(tensors: Sequence[Tensor]) -> Array[c_int64]:
    return _numbers([tensor.nbytes for tensor in tensors])
