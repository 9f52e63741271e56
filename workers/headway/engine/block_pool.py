"""The blocks themselves, on both tiers: who refers to them, what they hold, and where it goes when room is needed.

A block of the device is in exactly one of these states (dissertation 5.4.2; all but the first two are ours):

    free        has no content                     -> referenced, when taken
    referenced  a table or a pin needs it          -> cached, resting or free, when its last reference is dropped
    cached      holds content with a name          -> referenced, when it is asked for or evicted
    resting     is the source of a pending copy    -> free, when the copies are taken

Behind the device lies the host tier: swapped groups wait there, and evicted content can be found there again.
Nothing moves here: copies are noted, and the next step carries them out before it computes.

Both tiers may lie on several shards, each with an equal part of the blocks: shard s of S has [s * P, (s + 1) * P).
Content that goes from tier to tier stays on its shard where there is room, and goes to any other where there is not.
"""

from collections import Counter
from collections.abc import Iterable

from headway.engine.copies import PendingCopies
from headway.engine.events import BlockEventLog
from headway.engine.free_block_queue import FreeBlockQueue
from headway.engine.host_tier import HostTier
from headway.engine.pins import PinTable


class BlockPool:
    """References, names and copies of blocks. It knows no sequences.

    Every operation takes time proportional to the blocks it names, whatever the size of the pool.
    """

    def __init__(self, num_blocks: int, *, num_host_blocks: int, events: BlockEventLog, num_shards: int = 1) -> None:
        """`num_blocks` and `num_host_blocks` are those of all shards; `num_shards` divides both."""
        self.num_blocks = num_blocks
        self.num_shards = num_shards
        self.host = HostTier(num_host_blocks, num_shards=num_shards)
        self.pins = PinTable()
        self.free_queue = FreeBlockQueue(num_blocks, num_shards=num_shards)
        self._events = events
        self._copies = PendingCopies()
        self._num_references = [0] * num_blocks
        self._name_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._resting: list[int] = []

    @property
    def num_available_blocks(self) -> int:
        return self.free_queue.num_available

    @property
    def num_used_by_shard(self) -> list[int]:
        """Blocks of each shard that are not available."""
        size = self.num_blocks // self.num_shards
        return [size - self.free_queue.num_available_in(shard) for shard in range(self.num_shards)]

    @property
    def num_in_tables_by_shard(self) -> list[int]:
        """The number of used blocks on each shard that a block table names; blocks held by pins alone do not count.
        Takes time proportional to the pins.
        """
        num_blocks = self.num_used_by_shard
        idle = [block for block in self.pins.held.values() if self._num_references[block] == 1]
        for block in (*idle, *self._resting):
            num_blocks[self.free_queue.shard_of(block)] -= 1
        return num_blocks

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

    def take(self, shard: int = 0) -> int:
        """A block of the device with one reference and no content; there must be one available.

        It is one of the shard, or where that is full, of the one with most room.
        """
        block, is_cached = self.free_queue.take(shard)
        if is_cached:
            self._evict(block)
        self._num_references[block] = 1
        return block

    def reference(self, block: int) -> None:
        if self._num_references[block] == 0:
            self.free_queue.remove_cached(block)
        self._num_references[block] += 1

    def drop(self, block: int) -> None:
        """Drops one reference; named content stays behind as long as there is room."""
        self._num_references[block] -= 1
        if self._num_references[block]:
            return
        if self._name_of[block] is not None:
            self.free_queue.add_cached(block)
            return
        self._copies.forget(block)
        if self._copies.reads(block):
            self._resting.append(block)
        else:
            self.free_queue.add_free(block)

    def publish(self, block: int, name: bytes, *, parent_name: bytes) -> None:
        """Makes computed content known; of twins that were computed at the same time, only the first."""
        if name in self._block_of:
            return
        if self.host.find(name) is None:
            self._events.record_stored(name, parent_hash=parent_name)
        self._label(block, name)

    def copy(self, block: int) -> int:
        """A block of its own for whoever is about to write into a shared one; its reference goes over to the copy."""
        own = self.take(self.free_queue.shard_of(block))
        self._copies.add_within(block, block=own)
        self.drop(block)
        return own

    def move(self, block: int, *, shard: int) -> int:
        """Moves a referenced block, which nobody writes in this step, to a shard that has room.

        All of its references, its name and its pin go over to the block that is returned; the tables are the caller's.
        """
        place = self.take(shard)
        self._copies.add_within(block, block=place)
        self._num_references[place], self._num_references[block] = self._num_references[block], 1
        name = self._name_of[block]
        if name is not None:
            self._name_of[block] = None
            self._name_of[place] = name
            self._block_of[name] = place
            if name in self.pins.held:
                self.pins.hold(name, block=place)
        self.drop(block)
        return place

    def is_pinned(self, block: int) -> bool:
        """Whether a pin holds one of the block's references."""
        name = self._name_of[block]
        return name is not None and name in self.pins.held

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
        for block in self._resting:
            self.free_queue.add_free(block)
        self._resting.clear()
        return copies.pairs()

    def touch(self, name: bytes) -> None:
        """Marks cached content as just used, on both tiers."""
        block, host_block = self._block_of.get(name), self.host.find(name)
        if block is not None:
            self.free_queue.touch(block)
        if host_block is not None:
            self.host.touch(host_block)

    def admit(self, name: bytes, *, parent_name: bytes) -> int:
        """A block, cached under a name that is new here, for content that is written at once; one must be available.

        What gives way to it is not kept on the host: its copy would come after the write.
        """
        block, is_cached = self.free_queue.take(self.free_queue.widest)
        if is_cached:
            self._evict(block, keeps=False)
        self.free_queue.add_cached(block)
        self.publish(block, name, parent_name=parent_name)
        return block

    def check_integrity(self, *, references: Iterable[int], host_references: Iterable[int]) -> None:
        """Asserts that the bookkeeping is right, given every table entry. Takes time proportional to the pool."""
        counts = Counter([*references, *self.pins.held.values()])
        assert self._num_references == [counts[block] for block in range(self.num_blocks)], "wrong references"
        free = [block for blocks in self.free_queue.free for block in blocks]
        cached = [block for blocks in self.free_queue.cached for block in blocks]
        states = Counter([*free, *cached, *self._resting, *counts])
        assert states == Counter(range(self.num_blocks)), "a block is lost or in two states"
        named = {block: name for block, name in enumerate(self._name_of) if name is not None}
        assert named == {block: name for name, block in self._block_of.items()}, "wrong names"
        assert named.keys() >= set(cached), "a cached block has no name"
        assert named.keys().isdisjoint([*free, *self._resting]), "a free block has a name"
        assert all(self._block_of[name] == block for name, block in self.pins.held.items()), "a pin holds a wrong block"
        self.free_queue.check_integrity()
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

    def _evict(self, block: int, *, keeps: bool = True) -> None:
        """Clears a cached block, whose content goes to the host if there is room and it `keeps` what it had."""
        name = self._name_of[block]
        assert name is not None, f"cached block {block} has no name"
        home = self.host.find(name)
        if home is not None:
            self.host.touch(home)
        elif keeps and self.host.num_available_blocks:
            self.host.drop(self._copy_out(block))
        else:
            self._events.record_removed(name)
        self._name_of[block] = None
        del self._block_of[name]
        self._copies.forget(block)

    def _home_of(self, block: int) -> int | None:
        """The host block that holds the same content, if there is one."""
        if block in self._copies.into:
            return self._copies.into[block]
        name = self._name_of[block]
        return None if name is None else self.host.find(name)

    def _copy_out(self, block: int) -> int:
        host_block, dropped = self.host.take(self.free_queue.shard_of(block))
        if dropped is not None and dropped not in self._block_of:
            self._events.record_removed(dropped)
        self._copies.add_out(block, host_block=host_block)
        name = self._name_of[block]
        if name is not None:
            self.host.label(host_block, name)
        return host_block

    def _copy_in(self, host_block: int) -> int:
        block = self.take(self.host.free_queue.shard_of(host_block))
        if self._copies.add_in(host_block, block=block):
            self.host.reference(host_block)  # until the copies are taken
        name = self.host.name_of(host_block)
        if name is not None:
            self._label(block, name)
        return block
