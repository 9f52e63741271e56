"""The numbered log of blocks that the prefix cache stored and evicted; the cluster's prefix index reads it.

Content that moves between the device and the host tier stays in the cache: nothing is recorded.
The engine's thread records; any other thread reads. A reader keeps the number of the last event it applied and asks
for what came `since`; one that lags behind the ring takes a `snapshot` instead. Numbers start anew with each log:
across processes they mean something only beside the process's own identity.
"""

import threading
from collections import deque
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class BlockStored:
    """A block can be shared from now on. `parent_hash` is empty for the first block of a sequence."""

    block_hash: bytes
    parent_hash: bytes


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """A block's content is gone, from the device and from the host."""

    block_hash: bytes


BlockEvent = BlockStored | BlockRemoved


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events, oldest first; the last one has number `last_sequence_number`."""

    events: tuple[BlockEvent, ...]
    last_sequence_number: int


@dataclass(frozen=True, slots=True)
class EventSnapshot:
    """All blocks that the cache held after event `last_sequence_number`, the longest stored first."""

    blocks: tuple[BlockStored, ...]
    last_sequence_number: int


class BlockEventLog:
    """A ring of the latest events, and the set that all of them together amount to.

    Events are numbered from 1. The lock is held for one append by the writer, and for one copy by a reader.
    """

    def __init__(self, *, num_events: int = 65536) -> None:
        self._lock = threading.Lock()
        self._ring: deque[BlockEvent] = deque(maxlen=num_events)
        self._stored: dict[bytes, BlockStored] = {}
        self._last_sequence_number = 0

    def record_stored(self, block_hash: bytes, *, parent_hash: bytes) -> None:
        event = BlockStored(block_hash, parent_hash)
        with self._lock:
            self._stored[block_hash] = event
            self._append(event)

    def record_removed(self, block_hash: bytes) -> None:
        event = BlockRemoved(block_hash)
        with self._lock:
            del self._stored[block_hash]
            self._append(event)

    def since(self, sequence_number: int) -> EventBatch | None:
        """Events after `sequence_number` (0: from the start); None when only a snapshot can tell."""
        with self._lock:
            last = self._last_sequence_number
            num_missing = last - sequence_number
            if not 0 <= num_missing <= len(self._ring):
                return None
            newest_first = tuple(islice(reversed(self._ring), num_missing))
        return EventBatch(newest_first[::-1], last)

    def snapshot(self) -> EventSnapshot:
        with self._lock:
            stored, last = self._stored.copy(), self._last_sequence_number
        return EventSnapshot(tuple(stored.values()), last)

    def _append(self, event: BlockEvent) -> None:
        self._ring.append(event)
        self._last_sequence_number += 1
