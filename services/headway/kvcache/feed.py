"""The block events of one model on one worker, applied in order and without a gap."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headway.kvcache.index import PrefixIndex

H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """A block that a worker stored, or removed."""

    block_hash: bytes
    stored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUpdate:
    """Consecutive events of a worker.

    Attributes:
        epoch: changes whenever the worker's cache starts anew, and the numbers with it.
        sequence_number: of the last event.
        snapshot: the events are all that the worker holds, rather than what changed.
    """

    epoch: str
    sequence_number: int
    snapshot: bool
    events: tuple[BlockEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """The last event applied. The default, before all events of any epoch, asks for a snapshot."""

    epoch: str = ""
    sequence_number: int = 0


class Feed(Generic[H]):
    """Keeps the index right about one holder, from the holder's block events.

    Attributes:
        position: the last event that the index has applied.
        num_snapshots: how often the index was rebuilt from a snapshot.
        num_drifted_blocks: blocks that snapshots proved the index wrong about, 0 while nobody has a bug.
    """

    def __init__(self, holder: H, index: PrefixIndex[H]) -> None:
        self._holder = holder
        self._index = index
        self._needs_snapshot = True
        self.position = Position()
        self.num_snapshots = 0
        self.num_drifted_blocks = 0

    @property
    def resume_from(self) -> Position:
        """The position to ask the worker from: it sends the events after this one."""
        return Position() if self._needs_snapshot else self.position

    def ask_for_snapshot(self) -> None:
        """The next stream should begin with one. The index stays as it is until then."""
        self._needs_snapshot = True

    def apply(self, update: BlockUpdate) -> bool:
        """Applies an update; False where events are missing before it, so that only a snapshot helps."""
        if update.snapshot:
            self._replace(update)
        elif self._follows(update):
            self._apply_events(update.events)
        else:
            self.ask_for_snapshot()
            return False
        self.position = Position(update.epoch, update.sequence_number)
        return True

    def _follows(self, update: BlockUpdate) -> bool:
        first = update.sequence_number - len(update.events)
        return Position(update.epoch, first) == self.position

    def _apply_events(self, events: Iterable[BlockEvent]) -> None:
        for event in events:
            if event.stored:
                self._index.store(self._holder, event.block_hash)
            else:
                self._index.remove(self._holder, event.block_hash)

    def _replace(self, update: BlockUpdate) -> None:
        num_changed = self._index.replace(self._holder, (event.block_hash for event in update.events))
        if update.epoch == self.position.epoch:
            # Each event that was not seen yet accounts for one changed block at most; the rest is drift.
            num_unseen = max(0, update.sequence_number - self.position.sequence_number)
            self.num_drifted_blocks += max(0, num_changed - num_unseen)
        self.num_snapshots += 1
        self._needs_snapshot = False
