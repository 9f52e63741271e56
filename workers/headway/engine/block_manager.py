"""The tables: which blocks hold the tokens of each sequence, shared wherever their content is the same.

Full, computed blocks are published under the hash of their tokens, and nobody writes into a full block. The last,
partly filled block can be shared by forks; whoever writes into it first gets a copy of its own (dissertation 5.4.3).
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Group

from headway.core.block_hash import block_hashes, extend_block_hashes
from headway.core.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from headway.engine.block_mover import BlockMover
from headway.engine.block_pool import BlockPool
from headway.engine.events import BlockEventLog
from headway.engine.pins import PinnedPrefix
from headway.engine.sequence import Sequence
from headway.engine.shard_selector import ShardSelector
from headway.engine.stats import BlockStats, ShardStats

_NO_PARENT = b""
_MAX_PINNED_FRACTION = 0.5


class BlockManager:
    """Gives sequences their blocks, takes them back, and moves groups of sequences between the tiers.

    Every operation takes time proportional to the blocks it names, whatever the size of the pool. The copies that
    operations note are carried out by the next step, before it computes: whoever takes them must see to it.

    The cache may lie on several shards. Any block of a table can be on any of them; where a new one goes, the placement
    says. What is available is one number, since a full shard is passed over.

    Attributes:
        num_moved_blocks: between shards, since the start.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int = 16,
        num_host_blocks: int = 0,
        enable_prefix_cache: bool = True,
        salt: bytes = b"",
        events: BlockEventLog | None = None,
        num_shards: int = 1,
    ) -> None:
        self.block_size = block_size
        self.events = events or BlockEventLog()
        self.num_moved_blocks = 0
        self._pool = BlockPool(num_blocks, num_host_blocks=num_host_blocks, events=self.events, num_shards=num_shards)
        self._shard_selector = ShardSelector(num_shards, num_blocks=num_blocks // num_shards)
        self._enable_prefix_cache = enable_prefix_cache
        self._salt = salt

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """The number of device blocks that hold no content."""
        return self._pool.free_queue.num_free

    @property
    def num_cached_blocks(self) -> int:
        """Blocks that hold content for whoever comes next, and can be evicted."""
        return self._pool.free_queue.num_cached

    @property
    def num_available_blocks(self) -> int:
        return self._pool.num_available_blocks

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - self.num_available_blocks

    @property
    def num_used_host_blocks(self) -> int:
        """Host blocks of swapped sequences, and of copies under way."""
        return self._pool.host.num_used_blocks

    @property
    def num_unpinned_blocks(self) -> int:
        """Blocks that a group can always have, when it is alone."""
        return self.num_blocks - self._pool.pins.num_blocks

    @property
    def imbalance(self) -> float:
        """The fullest shard's blocks in tables, relative to what its weight gives it; 1 where all are even."""
        return self._shard_selector.imbalance(self._pool.num_in_tables_by_shard)

    def set_shard_weights(self, weights: Group[float]) -> None:
        """Sets what shards are to have in proportion to each other; blocks move there as rebalancing gets to them.

        Raises:
            InvalidArgumentError: as `ShardSelector.set_weights` does.
        """
        self._shard_selector.set_weights(weights)

    def find_prefix(self, sequence: Sequence) -> list[bytes]:
        """Names of the blocks of the sequence's longest cached prefix, on either tier.

        The last token is left out: it must be computed, to give logits.
        """
        prefix: list[bytes] = []
        if not self._enable_prefix_cache or sequence.owes_prompt_logprobs:
            return prefix
        num_usable = (len(sequence) - 1) // self.block_size
        for name in self._names(sequence)[:num_usable]:
            if not self._pool.holds(name):
                break
            prefix.append(name)
        return prefix

    def fits(self, *, prefix: list[bytes], num_tokens: int, num_reserved: int) -> bool:
        """Whether `num_tokens`, the cached `prefix` among them, find room that leaves `num_reserved` blocks over."""
        num_shared = sum(not self._pool.takes_room(name) for name in prefix)
        return self._num_blocks_of(num_tokens) - num_shared + num_reserved <= self.num_available_blocks

    def adopt(self, sequence: Sequence, *, prefix: list[bytes]) -> None:
        """Starts the table of a sequence with shared blocks, whose tokens count as computed."""
        assert not sequence.block_table, f"{sequence.request_id} already holds blocks"
        sequence.block_table.extend(self._pool.gather(prefix))
        sequence.num_published_blocks = len(prefix)
        sequence.num_computed_tokens = len(prefix) * self.block_size

    def publish(self, sequence: Sequence) -> None:
        """Offers the blocks that have become full and computed to every later sequence; what is pending is neither."""
        num_computed = sequence.num_computed_tokens - sequence.num_pending_tokens
        first, end = sequence.num_published_blocks, num_computed // self.block_size
        if first >= end or not self._enable_prefix_cache:
            return
        names = self._names(sequence)
        for index in range(first, end):
            parent_name = names[index - 1] if index else _NO_PARENT
            self._pool.publish(sequence.block_table[index], names[index], parent_name=parent_name)
        sequence.num_published_blocks = end

    def num_blocks_to_grow(self, sequence: Sequence, *, num_tokens: int) -> int:
        """Blocks that `grow` would take, a copy on write included."""
        num_new = -(-num_tokens // self.block_size) - len(sequence.block_table)
        return (max(0, num_new)) + self._writes_shared_block(sequence, num_tokens)

    def grow(self, sequence: Sequence, *, num_tokens: int) -> bool:
        """Extends the table to hold `num_tokens`, and makes the block that is written first the sequence's own.

        Changes nothing and returns False if the blocks are not there.
        """
        if self.num_blocks_to_grow(sequence, num_tokens=num_tokens) > self.num_available_blocks:
            return False
        table = sequence.block_table
        if self._writes_shared_block(sequence, num_tokens):
            index = sequence.num_computed_tokens // self.block_size
            table[index] = self._pool.copy(table[index])
            sequence.num_blocks_by_shard.clear()  # the copy may lie on another shard
        num_new = self._num_blocks_of(num_tokens) - len(table)
        if self._pool.num_shards == 1:
            table.extend([self._pool.take() for _ in range(num_new)])
        elif num_new > 0:
            table.extend([self._pool.take(shard) for shard in self._choose_shards(sequence, num_new)])
        return True

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Starts the table of a child with the written blocks of its parent, with which it shares those tokens."""
        assert not child.block_table, f"{child.request_id} already holds blocks"
        for block in self._written(parent):
            self._pool.reference(block)
            child.block_table.append(block)
        child.block_hashes[:] = parent.block_hashes[: parent.num_computed_tokens // self.block_size]
        child.num_computed_tokens = parent.num_computed_tokens
        child.num_published_blocks = parent.num_published_blocks

    def free(self, sequence: Sequence) -> None:
        """Drops the sequence's references on both tiers, last block first: a prefix outlives what follows it."""
        self._drop_table(sequence)
        self._drop_host_table(sequence)
        sequence.num_published_blocks = 0
        sequence.num_computed_tokens = 0

    def swap_out(self, sequences: Group[Sequence]) -> bool:
        """Moves the written blocks of a group to the host, shared ones once (dissertation 5.4.5).

        Changes nothing and returns False if the host has no room for all of them.
        """
        moved = self._pool.move_out(self._written_by(sequences))
        if moved is None:
            return False
        for sequence in sequences:
            for block in self._written(sequence):
                self._pool.host.reference(moved[block])
                sequence.host_block_table.append(moved[block])
            self._drop_table(sequence)
        for host_block in moved.values():
            self._pool.host.drop(host_block)
        return True

    def can_swap_in(self, sequences: Group[Sequence], *, num_reserved: int) -> bool:
        """Whether a swapped group finds room for all of its known tokens, and leaves `num_reserved` blocks over."""
        host = self._pool.host
        host_blocks = Counter(block for sequence in sequences for block in sequence.host_block_table)
        num_needed = sum(self._pool.takes_room(host.name_of(block)) for block in host_blocks)
        num_needed += sum(self._num_blocks_of(len(seq)) - len(seq.host_block_table) for seq in sequences)
        partly_filled = {seq.host_block_table[-1] for seq in sequences if seq.num_computed_tokens % self.block_size}
        num_needed += sum(host_blocks[block] - 1 for block in partly_filled)  # copies on write: the last needs none
        return num_needed + num_reserved <= self.num_available_blocks

    def swap_in(self, sequences: Group[Sequence]) -> None:
        """Brings back a group that fits; what still lies on the device is shared, not copied."""
        host_blocks = dict.fromkeys(block for sequence in sequences for block in sequence.host_block_table)
        arrived = self._pool.bring_in(list(host_blocks))
        for sequence in sequences:
            assert not sequence.block_table, f"{sequence.request_id} already holds blocks"
            for host_block in sequence.host_block_table:
                self._pool.reference(arrived[host_block])
                sequence.block_table.append(arrived[host_block])
            self._drop_host_table(sequence)
        for block in arrived.values():
            self._pool.drop(block)

    def num_blocks_to_swap(self, sequences: Group[Sequence]) -> int:
        """Written blocks of a group, shared ones once."""
        return len(self._written_by(sequences))

    def num_tokens_to_recompute(self, sequences: Group[Sequence]) -> int:
        """Computed tokens of a group, without the prefix blocks that others keep on the device."""
        own = Counter(block for sequence in sequences for block in sequence.block_table)
        num_tokens = 0
        for sequence in sequences:
            published = sequence.block_table[: sequence.num_published_blocks]
            num_kept = sum(self._pool.num_references(block) > own[block] for block in published)
            num_tokens += sequence.num_computed_tokens - num_kept * self.block_size
        return num_tokens

    def rebalance(self, sequences: Iterable[Sequence], *, max_moves: int) -> int:
        """Moves blocks from shards that have more than their weight gives them to those with less; returns how many.

        It moves full blocks only, for all tables that share them, and is given every sequence. The places that they
        leave are available when the copies have been taken.
        """
        holders = [sequence for sequence in sequences if sequence.block_table]
        for holder in holders:
            self._count_by_shard(holder)
        mover = BlockMover(holders, pool=self._pool, shard_selector=self._shard_selector, block_size=self.block_size)
        num_moves = 0
        while num_moves < max_moves and mover.move():
            num_moves += 1
        self.num_moved_blocks += num_moves
        return num_moves

    def take_copies(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
        """Copies for the next step, each once: (device, host), (host, device) and (source, destination) blocks."""
        return self._pool.take_copies()

    def pin(self, pin_id: str, token_ids: Group[int]) -> None:
        """Keeps the whole blocks of a prefix on the device, each from when it is published until it is unpinned.

        Pinning computes nothing: any sequence that starts with the prefix does. A pin replaces one of the same id.

        Raises:
            FailedPreconditionError: there is no prefix cache.
            InvalidArgumentError: the prefix is shorter than a block.
            ResourceExhaustedError: pins would take more than half of the pool.
        """
        if not self._enable_prefix_cache:
            raise FailedPreconditionError("Prefixes cannot be pinned.", hint="Serve the model with its prefix cache.")
        if not (names := tuple(block_hashes(token_ids, block_size=self.block_size, salt=self._salt))):
            raise InvalidArgumentError(
                f"The prefix has {len(token_ids)} tokens; only whole blocks of {self.block_size} are shared.",
                hint="Pin a longer prefix.",
                field="token_ids",
            )
        num_pinned = self._pool.pins.num_blocks_with(pin_id, names)
        if num_pinned > self.num_blocks * _MAX_PINNED_FRACTION:
            raise ResourceExhaustedError(
                f"Pinned prefixes would take {num_pinned} of {self.num_blocks} blocks; they can have half.",
                hint="Unpin another prefix, or give the model more memory.",
                field="token_ids",
            )
        self._pool.pin(pin_id, names)

    def unpin(self, pin_id: str) -> bool:
        """Lets a prefix go like any other content; False if the pin is unknown."""
        is_known = pin_id in self._pool.pins
        self._pool.unpin(pin_id)
        return is_known

    def pinned_prefixes(self) -> list[PinnedPrefix]:
        return self._pool.pins.prefixes()

    def stats(self, sequences: Iterable[Sequence]) -> BlockStats:
        """Blocks by state, given every sequence. Takes time proportional to the tables."""
        num_holders: Counter[int] = Counter()
        wasted: dict[int, int] = {}  # unwritten slots by block; of sharers, the one that wrote most counts
        for sequence in sequences:
            num_holders.update(sequence.block_table)
            first_partial = sequence.num_computed_tokens // self.block_size
            for index, block in enumerate(sequence.block_table[first_partial:], first_partial):
                num_unwritten = min(self.block_size, (index + 1) * self.block_size - sequence.num_computed_tokens)
                wasted[block] = min(num_unwritten, wasted.get(block, self.block_size))
        host = self._pool.host
        return BlockStats(
            num_used=self.num_used_blocks,
            num_cached=self.num_cached_blocks,
            num_free=self.num_free_blocks,
            num_pinned=self._pool.pins.num_blocks,
            num_shared=sum(count > 1 for count in num_holders.values()),
            num_table_entries=num_holders.total(),
            num_allocated_slots=len(num_holders) * self.block_size,
            num_wasted_slots=sum(wasted.values()),
            num_host_used=host.num_used_blocks,
            num_host_cached=host.num_cached_blocks,
            num_host_free=host.num_free_blocks,
            shards=self.shard_stats(),
        )

    def shard_stats(self) -> tuple[ShardStats, ...]:
        """Blocks by state, shard by shard. Takes time proportional to the shards."""
        free_queue = self._pool.free_queue
        figures = zip(
            self._pool.num_used_by_shard, free_queue.cached, free_queue.free, self._shard_selector.weights, strict=True
        )
        return tuple(ShardStats(used, len(cached), len(free), weight) for used, cached, free, weight in figures)

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Asserts that the bookkeeping is right, given every sequence. Takes time proportional to the pool."""
        holders = list(sequences)
        self._pool.check_integrity(
            references=[block for sequence in holders for block in sequence.block_table],
            host_references=[block for sequence in holders for block in sequence.host_block_table],
        )

    def locate(self, name: bytes) -> tuple[int, bool] | None:
        """The block that holds the named content, and whether that is one of the host tier."""
        block = self._pool.find(name)
        if block is not None:
            return block, False
        host_block = self._pool.host.find(name)
        return None if host_block is None else (host_block, True)

    def touch(self, name: bytes) -> bool:
        """Marks named content as just used; False if it is on neither tier."""
        self._pool.touch(name)
        return self._pool.holds(name)

    def admit(self, name: bytes, *, parent_name: bytes) -> int:
        """A device block for named content that is on neither tier; it must be written before the next step."""
        return self._pool.admit(name, parent_name=parent_name)

    def _choose_shards(self, sequence: Sequence, num_blocks: int) -> list[int]:
        """Chooses a shard for each of the sequence's next `num_blocks` blocks."""
        own, used = list(self._count_by_shard(sequence)), self._pool.num_used_by_shard
        shards = []
        for _ in range(num_blocks):
            shard = self._shard_selector.choose(own, used)
            own[shard] += 1
            used[shard] += 1
            shards.append(shard)
        return shards

    def _count_by_shard(self, sequence: Sequence) -> list[int]:
        """Blocks of the sequence's table on each shard; counts those that have come since it was last asked."""
        counts = sequence.num_blocks_by_shard
        if not counts:
            counts.extend([0] * self._pool.num_shards)
        for block in sequence.block_table[sum(counts) :]:
            counts[self._pool.free_queue.shard_of(block)] += 1
        return counts

    def _written(self, sequence: Sequence) -> "array[int]":
        return sequence.block_table[: self._num_blocks_of(sequence.num_computed_tokens)]

    def _written_by(self, sequences: Group[Sequence]) -> list[int]:
        return list(dict.fromkeys(block for sequence in sequences for block in self._written(sequence)))

    def _writes_shared_block(self, sequence: Sequence, num_tokens: int) -> bool:
        num_computed, table = sequence.num_computed_tokens, sequence.block_table
        index = num_computed // self.block_size
        return index < len(table) and num_computed < num_tokens and self._pool.num_references(table[index]) > 1

    def _drop_table(self, sequence: Sequence) -> None:
        for block in reversed(sequence.block_table):
            self._pool.drop(block)
        del sequence.block_table[:]
        sequence.num_blocks_by_shard.clear()

    def _drop_host_table(self, sequence: Sequence) -> None:
        for host_block in reversed(sequence.host_block_table):
            self._pool.host.drop(host_block)
        sequence.host_block_table.clear()

    def _names(self, sequence: Sequence) -> list[bytes]:
        salt = self._salt + sequence.cache_salt.encode()
        extend_block_hashes(sequence.block_hashes, sequence.token_ids, block_size=self.block_size, salt=salt)
        return sequence.block_hashes

    def _num_blocks_of(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
