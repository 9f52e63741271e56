"""Memory for tensors that come and go: pieces are used again when they are free."""

import bisect
import weakref
from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNMENT_BYTES = 64
_MIN_CHUNK_BYTES = 1 << 20

Span = tuple[int, int, int]
"""Of a chunk's number, the first byte and the one behind the last."""


class Arena:
    """Hands out tensors on the CPU. A piece is free again when no tensor refers to it, views among them.

    It is not cleared and does not shrink; one thread at a time takes from it.
    """

    def __init__(self) -> None:
        self._chunks: list[NDArray[np.uint8]] = []
        self._free: list[Span] = []  # ascending, with something taken between any two of a chunk

    @property
    def num_bytes(self) -> int:
        """Number of bytes that it has taken from the system."""
        return sum(len(chunk) for chunk in self._chunks)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Makes a contiguous tensor with whatever the memory holds."""
        num_bytes = prod(shape) * dtype.itemsize
        chunk, start, stop = self._take(max(-(-num_bytes // _ALIGNMENT_BYTES), 1) * _ALIGNMENT_BYTES)
        # A tensor's memory is known to be free when the array that it was made from is.
        piece = self._chunks[chunk][start:stop]
        weakref.finalize(piece, self._give_back, (chunk, start, stop)).atexit = False
        return torch.from_numpy(piece)[:num_bytes].view(dtype).view(tuple(shape))

    def _take(self, num_bytes: int) -> Span:
        for index, (chunk, start, stop) in enumerate(self._free):
            rest = start + num_bytes
            if rest <= stop:
                self._free[index : index + 1] = [(chunk, rest, stop)] if rest < stop else []
                return chunk, start, rest
        # Twice as large as the one before: what is left over in those that were too small does not matter.
        size = max(num_bytes, _MIN_CHUNK_BYTES, 2 * max(map(len, self._chunks), default=0))
        memory = np.empty(size + _ALIGNMENT_BYTES, np.uint8)
        offset = -memory.ctypes.data % _ALIGNMENT_BYTES
        self._chunks.append(memory[offset : offset + size])
        self._free.append((len(self._chunks) - 1, 0, size))
        return self._take(num_bytes)

    def _give_back(self, span: Span) -> None:
        chunk, start, stop = span
        index = bisect.bisect(self._free, span)
        if index < len(self._free) and self._free[index][:2] == (chunk, stop):
            stop = self._free.pop(index)[2]
        if index > 0 and self._free[index - 1][::2] == (chunk, start):
            index -= 1
            start = self._free.pop(index)[1]
        self._free.insert(index, (chunk, start, stop))
