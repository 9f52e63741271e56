"""The blocks themselves, on both tiers: who refers to them, what they hold, and where it goes when room is needed.

A block of the device is in exactly one of these states (dissertation 5.4.2; all but the first two are ours):

    free        has no content                     -> referenced, when taken
    referenced  a table or a pin needs it          -> cached, resting or free, when its last reference is dropped
    cached      holds content with a name          -> referenced, when it is asked for or evicted
    resting     is the source of a pending copy    -> free, when the copies are taken

Behind the device lies the host tier: swapped groups wait there, and evicted content can be found there again.
Nothing moves here: copies are noted, and the next step carries them out before it computes.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable

from headway.engine.copies import PendingCopies
from headway.engine.events import BlockEventLog
from headway.engine.host_tier import HostTier
from headway.engine.pins import PinTable


class BlockPool:
    """References, names and copies of blocks. It knows no sequences.

    Every operation takes time proportional to the blocks it names, whatever the size of the pool.
    """

    def __init__(self, num_blocks: int, *, num_host_blocks: int, events: BlockEventLog) -> None:
        self.num_blocks = num_blocks
        self.host = HostTier(num_host_blocks)
        self.pins = PinTable()
        self._events = events
        self._copies = PendingCopies()
        self._num_references = [0] * num_blocks
        self._name_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # unreferenced, least recently used first
        self._resting: list[int] = []

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_cached_blocks(self) -> int:
        return len(self._cached)

    @property
    def num_available_blocks(self) -> int:
        return len(self._free) + len(self._cached)

    def find(self, name: bytes | None) -> int | None:
        """The device block that holds the named content."""
        return None if name is None else self._block_of.get(name)

    def holds(self, name: bytes) -> bool:
        """Whether the named content lies on either tier."""
        return name in self._block_of or self.host.find(name) is not None

    def num_references(self, block: int) -> int:
        return self._num_references[block]

    def takes_room(self, name: bytes | None) -> bool:
        """Whether asking for this content makes one more block unavailable; all but shared content does."""
        block = self.find(name)
        return block is None or self._num_references[block] == 0

    def take(self) -> int:
        """A block of the device with one reference and no content; there must be one available."""
        block = self._free.pop() if self._free else self._evict()
        self._num_references[block] = 1
        return block

    def reference(self, block: int) -> None:
        if self._num_references[block] == 0:
            del self._cached[block]
        self._num_references[block] += 1

    def drop(self, block: int) -> None:
        """Drops one reference; named content stays behind as long as there is room."""
        self._num_references[block] -= 1
        if self._num_references[block]:
            return
        if self._name_of[block] is not None:
            self._cached[block] = None
            return
        self._copies.forget(block)
        if self._copies.reads(block):
            self._resting.append(block)
        else:
            self._free.append(block)

    def publish(self, block: int, name: bytes, *, parent_name: bytes) -> None:
        """Makes computed content known; of twins that were computed at the same time, only the first."""
        if name in self._block_of:
            return
        if self.host.find(name) is None:
            self._events.record_stored(name, parent_hash=parent_name)
        self._label(block, name)

    def copy(self, block: int) -> int:
        """A block of its own for whoever is about to write into a shared one; its reference goes over to the copy."""
        own = self.take()
        self._copies.add_within(block, block=own)
        self.drop(block)
        return own

    def move_out(self, blocks: list[int]) -> dict[int, int] | None:
        """Host blocks with the content of these distinct device blocks, by device block, each with one reference.

        Content that lies on the host already is shared. Returns None and changes nothing if there is no room.
        """
        homes = {block: self._home_of(block) for block in blocks}
        shared = [host_block for host_block in homes.values() if host_block is not None]
        for host_block in shared:
            self.host.reference(host_block)
        if len(blocks) - len(shared) > self.host.num_available_blocks:
            for host_block in shared:
                self.host.drop(host_block)
            return None
        return {block: self._copy_out(block) if home is None else home for block, home in homes.items()}

    def gather(self, names: list[bytes]) -> list[int]:
        """Device blocks with content that lies on either tier, each with one reference. There must be room."""
        missing: list[int] = []
        for name in names:  # held before any block is taken, lest taking evicts one of them
            block, host_block = self._block_of.get(name), self.host.find(name)
            if block is not None:
                self.reference(block)
            else:
                assert host_block is not None, "content that was found is gone"
                missing.append(host_block)
        self.bring_in(missing)
        return [self._block_of[name] for name in names]

    def bring_in(self, host_blocks: list[int]) -> dict[int, int]:
        """Device blocks with the content of these distinct host blocks, by host block, each with one reference.

        Content that lies on the device already is shared. There must be room for the rest.
        """
        shared = {host_block: self.find(self.host.name_of(host_block)) for host_block in host_blocks}
        for host_block, block in shared.items():  # held before any block is taken, lest taking evicts one of them
            self.host.reference(host_block)
            if block is not None:
                self.reference(block)
        arrived = {host: self._copy_in(host) if block is None else block for host, block in shared.items()}
        for host_block in arrived:
            self.host.drop(host_block)
        return arrived

    def pin(self, pin_id: str, names: tuple[bytes, ...]) -> None:
        """Keeps content on the device from now on, or from when it comes there."""
        released = self.pins.put(pin_id, names)
        for name in names:
            self._hold_if_pinned(name)
        for block in released:
            self.drop(block)

    def unpin(self, pin_id: str) -> None:
        for block in self.pins.remove(pin_id):
            self.drop(block)

    def take_copies(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
        """(device, host), (host, device) and (source, destination) pairs to be copied, in this order, and only once."""
        copies, self._copies = self._copies, PendingCopies()
        for host_block in copies.read_on_host:
            self.host.drop(host_block)
        self._free.extend(self._resting)
        self._resting.clear()
        return copies.pairs()

    def check_integrity(self, *, references: Iterable[int], host_references: Iterable[int]) -> None:
        """Asserts that the books are right, given every table entry. Takes time proportional to the pool."""
        counts = Counter([*references, *self.pins.held.values()])
        assert self._num_references == [counts[block] for block in range(self.num_blocks)], "wrong references"
        states = Counter([*self._free, *self._cached, *self._resting, *counts])
        assert states == Counter(range(self.num_blocks)), "a block is lost or in two states"
        named = {block: name for block, name in enumerate(self._name_of) if name is not None}
        assert named == {block: name for name, block in self._block_of.items()}, "wrong names"
        assert named.keys() >= self._cached.keys(), "a cached block has no name"
        assert named.keys().isdisjoint([*self._free, *self._resting]), "a free block has a name"
        assert all(self._block_of[name] == block for name, block in self.pins.held.items()), "a pin holds a wrong block"
        self.host.check_integrity([*host_references, *self._copies.read_on_host])

    def _label(self, block: int, name: bytes) -> None:
        self._name_of[block] = name
        self._block_of[name] = block
        self._hold_if_pinned(name)

    def _hold_if_pinned(self, name: bytes) -> None:
        block = self._block_of.get(name)
        if block is not None and self.pins.wants(name):
            self.reference(block)
            self.pins.hold(name, block=block)

    def _evict(self) -> int:
        """Takes the place of the least recently used content, which goes to the host if there is room."""
        block, _ = self._cached.popitem(last=False)
        name = self._name_of[block]
        assert name is not None, f"cached block {block} has no name"
        home = self.host.find(name)
        if home is not None:
            self.host.touch(home)
        elif self.host.num_available_blocks:
            self.host.drop(self._copy_out(block))
        else:
            self._events.record_removed(name)
        self._name_of[block] = None
        del self._block_of[name]
        self._copies.forget(block)
        return block

    def _home_of(self, block: int) -> int | None:
        """The host block that holds the same content, if there is one."""
        if block in self._copies.into:
            return self._copies.into[block]
        name = self._name_of[block]
        return None if name is None else self.host.find(name)

    def _copy_out(self, block: int) -> int:
        host_block, dropped = self.host.take()
        if dropped is not None and dropped not in self._block_of:
            self._events.record_removed(dropped)
        self._copies.add_out(block, host_block=host_block)
        name = self._name_of[block]
        if name is not None:
            self.host.label(host_block, name)
        return host_block

    def _copy_in(self, host_block: int) -> int:
        block = self.take()
        if self._copies.add_in(host_block, block=block):
            self.host.reference(host_block)  # until the copies are taken
        name = self.host.name_of(host_block)
        if name is not None:
            self._label(block, name)
        return block
