"""Buddy allocation, as the dissertation assumes of Orca: ranges of a power of two, split in halves and merged again."""


class BuddyAllocator:
    """Hands out contiguous ranges of a pool of any size, which is cut into powers of two from its start."""

    def __init__(self, size: int) -> None:
        self._free: dict[int, set[int]] = {}  # starts of free ranges, by their size
        self._sizes: dict[int, int] = {}  # of the ranges that were handed out, by their start
        self._roots: set[tuple[int, int]] = set()  # (start, size), which have no buddy
        start = 0
        while start < size:
            root_size = 1 << (size - start).bit_length() - 1
            self._roots.add((start, root_size))
            self._add(start, root_size)
            start += root_size

    def fits(self, num: int) -> bool:
        """Whether a free range holds `num`."""
        return any(size >= num for size, starts in self._free.items() if starts)

    def allocate(self, num: int) -> int | None:
        """The start of a range of at least `num`, from the smallest free one; None if there is none."""
        wanted = 1 << (num - 1).bit_length()
        size = min((size for size, starts in self._free.items() if starts and size >= wanted), default=None)
        if size is None:
            return None
        start = min(self._free[size])
        self._free[size].remove(start)
        while size > wanted:
            size //= 2
            self._add(start + size, size)
        self._sizes[start] = size
        return start

    def size_of(self, start: int) -> int:
        """Size of a range that was handed out."""
        return self._sizes[start]

    def release(self, start: int) -> None:
        """Takes a range back and merges it with its buddy, and so on, as long as that is free."""
        size = self._sizes.pop(start)
        while (start, size) not in self._roots:
            buddy = self._buddy_of(start, size)
            if buddy not in self._free.get(size, ()):
                break
            self._free[size].remove(buddy)
            start, size = min(start, buddy), 2 * size
        self._add(start, size)

    def _buddy_of(self, start: int, size: int) -> int:
        root = next(root for root, root_size in self._roots if root <= start < root + root_size)
        return root + ((start - root) ^ size)

    def _add(self, start: int, size: int) -> None:
        self._free.setdefault(size, set()).add(start)
