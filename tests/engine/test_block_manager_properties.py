"""Random operations on the block manager, against a pool of tokens in which its copies are really carried out.

A slot holds all tokens up to its own, so content in the wrong block, at the wrong place or of the wrong sequence shows.
The pool lies on one shard or several, whose weights change at any time.
"""

import itertools
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.core.block_hash import block_hashes
from headway.core.errors import ResourceExhaustedError
from headway.core.request import SamplingParams
from headway.engine.block_manager import BlockManager
from headway.engine.events import BlockStored
from headway.engine.sequence import Sequence

BLOCK_SIZE = 2
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=12)  # few tokens: prefixes meet often
INDEX = st.integers(0, 99)
WEIGHTS = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(lambda weights: weights[0] > 0)
INDICES = st.sets(st.integers(0, 5), min_size=1)

Slots = list[tuple[int, ...]]
GARBAGE: Slots = [()] * BLOCK_SIZE


class Memory:
    """Both tiers. Copies of one kind are made at once and one by one, which must come to the same."""

    def __init__(self, num_blocks: int, num_host_blocks: int) -> None:
        self.device = [GARBAGE] * num_blocks
        self.host = [GARBAGE] * num_host_blocks

    def carry_out(self, blocks: BlockManager) -> None:
        out, into, within = blocks.take_copies()
        self._copy(out, self.device, self.host)
        self._copy(into, self.host, self.device)
        self._copy(within, self.device, self.device)

    def _copy(self, pairs: list[tuple[int, int]], source: list[Slots], destination: list[Slots]) -> None:
        at_once = [source[block] for block, _ in pairs]
        for block, target in pairs:
            destination[target] = source[block]
        assert [destination[target] for _, target in pairs] == at_once, "copies depend on each other"


class BlockManagerMachine(RuleBasedStateMachine):
    """Sequences come, fork, move between the tiers and go in any order, as no scheduler would have them."""

    @initialize(
        num_blocks=st.integers(2, 12),
        num_host_blocks=st.integers(0, 6),
        enable_prefix_cache=st.booleans(),
        num_shards=st.integers(1, 4),
    )
    def start(self, num_blocks: int, num_host_blocks: int, enable_prefix_cache: bool, num_shards: int) -> None:
        """Shards are of one size: the numbers of blocks are rounded up to it."""
        num_blocks, num_host_blocks = (-(-num // num_shards) * num_shards for num in (num_blocks, num_host_blocks))
        self.num_shards = num_shards
        self.blocks = BlockManager(
            num_blocks,
            block_size=BLOCK_SIZE,
            num_host_blocks=num_host_blocks,
            enable_prefix_cache=enable_prefix_cache,
            num_shards=num_shards,
        )
        self.memory = Memory(num_blocks, num_host_blocks)
        self.enable_prefix_cache = enable_prefix_cache
        self.running: list[Sequence] = []
        self.swapped: list[Sequence] = []
        self.scheduled_sequences: dict[Sequence, int] = {}  # tokens that the next step computes
        self.stored: dict[bytes, bytes] = {}  # the prefix index, as a reader of the events has it
        self.last_event = 0
        self.pins: dict[str, list[bytes]] = {}
        self.resident: set[bytes] = set()  # pinned content that was seen on the device

    @rule(tokens=TOKENS, wants_prompt_logprobs=st.booleans())
    def admit(self, tokens: list[int], wants_prompt_logprobs: bool) -> None:
        sampling = SamplingParams(num_prompt_logprobs=0 if wants_prompt_logprobs else None)
        sequence = Sequence("s", tokens, len(tokens), sampling, arrival_s=0.0)
        prefix = self.blocks.find_prefix(sequence)
        if prefix:
            assert self.enable_prefix_cache
            assert not sequence.owes_prompt_logprobs
        assert len(prefix) * BLOCK_SIZE < len(tokens)
        assert prefix == block_hashes(tokens, block_size=BLOCK_SIZE)[: len(prefix)]
        if self.blocks.fits(prefix=prefix, num_tokens=len(tokens), num_reserved=0):
            self.blocks.adopt(sequence, prefix=prefix)
            assert self.blocks.grow(sequence, num_tokens=len(tokens))
            self.running.append(sequence)
            self.scheduled_sequences[sequence] = sequence.num_uncomputed_tokens

    @precondition(lambda self: self.running)
    @rule(index=INDEX, num_tokens=st.integers(1, 6))
    def schedule(self, index: int, num_tokens: int) -> None:
        sequence = self.running[index % len(self.running)]
        end = min(len(sequence), sequence.num_computed_tokens + num_tokens)
        table, available = list(sequence.block_table), self.blocks.num_available_blocks
        num_needed = self.blocks.num_blocks_to_grow(sequence, num_tokens=end)
        grown = self.blocks.grow(sequence, num_tokens=end)
        assert grown == (num_needed <= available)
        assert self.blocks.num_available_blocks == available - (num_needed if grown else 0)
        if grown and end > sequence.num_computed_tokens:
            self.scheduled_sequences[sequence] = end - sequence.num_computed_tokens
        elif not grown:
            assert list(sequence.block_table) == table

    @precondition(lambda self: self.running)
    @rule(index=INDEX, token=st.integers(0, 1))
    def append(self, index: int, token: int) -> None:
        self.running[index % len(self.running)].token_ids.append(token)

    @precondition(lambda self: any(sequence not in self.scheduled_sequences for sequence in self.running))
    @rule(index=INDEX, tail=TOKENS)
    def fork(self, index: int, tail: list[int]) -> None:
        idle = [sequence for sequence in self.running if sequence not in self.scheduled_sequences]
        parent = idle[index % len(idle)]
        available = self.blocks.num_available_blocks
        tokens = [*parent.token_ids[: parent.num_computed_tokens], *tail]
        child = Sequence("s", tokens, len(tokens), SamplingParams(), arrival_s=0.0)
        self.blocks.fork(parent, child)
        assert self.blocks.num_available_blocks == available
        self.running.append(child)

    @precondition(lambda self: self.running)
    @rule(indices=INDICES)
    def swap_out(self, indices: set[int]) -> None:
        group = [sequence for index, sequence in enumerate(self.running) if index in indices]
        tables = [list(sequence.block_table) for sequence in group]
        num_blocks, available = self.blocks.num_blocks_to_swap(group), self.blocks._pool.host.num_available_blocks
        assert 0 <= self.blocks.num_tokens_to_recompute(group) <= sum(seq.num_computed_tokens for seq in group)
        if not self.blocks.swap_out(group):
            assert num_blocks > available
            assert [list(sequence.block_table) for sequence in group] == tables
            return
        for sequence in group:
            self.scheduled_sequences.pop(sequence, None)
            self.running.remove(sequence)
            self.swapped.append(sequence)

    @precondition(lambda self: self.swapped)
    @rule(indices=INDICES)
    def swap_in(self, indices: set[int]) -> None:
        group = [sequence for index, sequence in enumerate(self.swapped) if index in indices]
        if self.blocks.can_swap_in(group, num_reserved=0):
            self.blocks.swap_in(group)
            for sequence in group:
                self.swapped.remove(sequence)
                self.running.append(sequence)
                assert self.blocks.grow(sequence, num_tokens=len(sequence))
                if sequence.num_uncomputed_tokens:
                    self.scheduled_sequences[sequence] = sequence.num_uncomputed_tokens

    @precondition(lambda self: self.running or self.swapped)
    @rule(index=INDEX)
    def free(self, index: int) -> None:
        sequences = [*self.running, *self.swapped]
        sequence = sequences[index % len(sequences)]
        (self.running if sequence in self.running else self.swapped).remove(sequence)
        self.scheduled_sequences.pop(sequence, None)
        self.blocks.free(sequence)
        assert (list(sequence.block_table), sequence.host_block_table, sequence.num_computed_tokens) == ([], [], 0)

    @precondition(lambda self: self.enable_prefix_cache)
    @rule(pin_id=st.sampled_from("ab"), tokens=st.lists(st.integers(0, 1), min_size=BLOCK_SIZE, max_size=12))
    def pin(self, pin_id: str, tokens: list[int]) -> None:
        pins = {**self.pins, pin_id: block_hashes(tokens, block_size=BLOCK_SIZE)}
        num_pinned = len({name for names in pins.values() for name in names})
        try:
            self.blocks.pin(pin_id, tokens)
        except ResourceExhaustedError:
            assert num_pinned > self.blocks.num_blocks / 2
        else:
            self.pins = pins
            assert self.blocks.num_unpinned_blocks == self.blocks.num_blocks - num_pinned

    @rule(pin_id=st.sampled_from("ab"))
    def unpin(self, pin_id: str) -> None:
        assert self.blocks.unpin(pin_id) == (self.pins.pop(pin_id, None) is not None)

    @rule(weights=WEIGHTS)
    def place(self, weights: list[int]) -> None:
        self.blocks.set_shard_weights(weights[: self.num_shards])

    @rule(max_moves=st.integers(1, 6))
    def rebalance(self, max_moves: int) -> None:
        available, lengths = self.blocks.num_available_blocks, [len(seq.block_table) for seq in self.running]
        num_moves = self.blocks.rebalance([*self.running, *self.swapped], max_moves=max_moves)
        assert num_moves <= (max_moves if self.num_shards > 1 else 0)
        assert available - num_moves <= self.blocks.num_available_blocks <= available
        assert [len(seq.block_table) for seq in self.running] == lengths

    @precondition(lambda self: self.enable_prefix_cache)
    @rule(tokens=TOKENS)
    def take_in(self, tokens: list[int]) -> None:
        """Content comes from elsewhere, between two steps: no copy is pending then, and none is noted."""
        self.step()
        parent_name = b""
        for index, name in enumerate(block_hashes(tokens, block_size=BLOCK_SIZE)):
            place = self.blocks.locate(name)
            assert self.blocks.touch(name) == (place is not None)
            if place is None and self.blocks.num_available_blocks:
                available = self.blocks.num_available_blocks
                block = self.blocks.admit(name, parent_name=parent_name)
                positions = range(index * BLOCK_SIZE, (index + 1) * BLOCK_SIZE)
                self.memory.device[block] = [tuple(tokens[: position + 1]) for position in positions]
                is_pinned = name in self.blocks._pool.pins.held
                assert self.blocks.num_available_blocks == available - is_pinned
                assert self.blocks.locate(name) == (block, False)
            parent_name = name
        assert self.blocks.take_copies() == ([], [], [])
        self.check_named_content()

    @rule()
    def step(self) -> None:
        self.memory.carry_out(self.blocks)
        for sequence, num_tokens in self.scheduled_sequences.items():
            self.compute(sequence, num_tokens)
        self.scheduled_sequences.clear()
        for sequence in self.running:
            self.check_content(sequence, sequence.block_table, self.memory.device)
        for sequence in self.swapped:
            self.check_content(sequence, sequence.host_block_table, self.memory.host)
        self.check_named_content()
        self.spoil_what_is_free()

    def compute(self, sequence: Sequence, num_tokens: int) -> None:
        for position in range(sequence.num_computed_tokens, sequence.num_computed_tokens + num_tokens):
            index, slot = divmod(position, BLOCK_SIZE)
            block = sequence.block_table[index]
            sharers = [other for other in self.running if block in other.block_table]
            assert sharers == [sequence], "a block that others hold is written"
            slots = list(self.memory.device[block])
            slots[slot] = tuple(sequence.token_ids[: position + 1])
            self.memory.device[block] = slots
        sequence.num_computed_tokens += num_tokens
        self.blocks.publish(sequence)

    def check_content(self, sequence: Sequence, table: list[int], tier: list[Slots]) -> None:
        for position in range(sequence.num_computed_tokens):
            index, slot = divmod(position, BLOCK_SIZE)
            assert tier[table[index]][slot] == tuple(sequence.token_ids[: position + 1])

    def check_named_content(self) -> None:
        pool = self.blocks._pool
        parents = {block.block_hash: block.parent_hash for block in self.blocks.events.snapshot().blocks}
        for names, tier in [(pool._block_of, self.memory.device), (pool.host._block_of, self.memory.host)]:
            for name, block in names.items():
                parent, own = [b"", *block_hashes(tier[block][-1], block_size=BLOCK_SIZE)][-2:]
                assert (name, parents[name]) == (own, parent)

    def spoil_what_is_free(self) -> None:
        pool = self.blocks._pool
        for block in itertools.chain(*pool.free_queue.free):
            self.memory.device[block] = GARBAGE
        for block in itertools.chain(*pool.host.free_queue.free):
            self.memory.host[block] = GARBAGE

    @invariant()
    def no_block_leaks_or_has_two_states(self) -> None:
        self.blocks.check_integrity([*self.running, *self.swapped])
        stats = self.blocks.stats(self.running)
        assert stats.num_used + stats.num_cached + stats.num_free == self.blocks.num_blocks
        assert stats.num_host_used + stats.num_host_cached + stats.num_host_free == self.blocks._pool.host.num_blocks
        figures = [(shard.num_used, shard.num_cached, shard.num_free) for shard in stats.shards]
        totals = [sum(figure) for figure in zip(*figures, strict=True)]
        assert totals == [stats.num_used, stats.num_cached, stats.num_free]
        assert 0 <= stats.num_wasted_slots <= stats.num_allocated_slots <= stats.num_table_entries * BLOCK_SIZE

    @invariant()
    def what_is_counted_of_a_table_is_right(self) -> None:
        num_blocks_each = self.blocks.num_blocks // self.num_shards
        for sequence in self.running:
            counted = sequence.block_table[: sum(sequence.num_blocks_by_shard)]
            for shard, count in enumerate(sequence.num_blocks_by_shard):
                assert count == sum(block // num_blocks_each == shard for block in counted)

    @invariant()
    def events_amount_to_what_is_held_on_either_tier(self) -> None:
        batch = self.blocks.events.since(self.last_event)
        assert batch is not None
        for event in batch.events:
            if isinstance(event, BlockStored):
                assert event.block_hash not in self.stored
                self.stored[event.block_hash] = event.parent_hash
            else:
                del self.stored[event.block_hash]
        self.last_event = batch.last_sequence_number
        snapshot = self.blocks.events.snapshot()
        assert {block.block_hash: block.parent_hash for block in snapshot.blocks} == self.stored
        pool = self.blocks._pool
        assert pool._block_of.keys() | pool.host._block_of.keys() == self.stored.keys()

    @invariant()
    def pinned_content_stays_on_the_device(self) -> None:
        pinned = {name for names in self.pins.values() for name in names}
        on_device = self.blocks._pool._block_of.keys() & pinned
        assert on_device >= self.resident & pinned
        self.resident = on_device

    def teardown(self) -> None:
        if not hasattr(self, "blocks"):
            return
        for sequence in [*self.running, *self.swapped]:
            self.blocks.free(sequence)
        for pin_id in self.pins:
            self.blocks.unpin(pin_id)
        self.blocks.take_copies()
        self.blocks.check_integrity([])
        assert self.blocks.num_available_blocks == self.blocks.num_blocks
        assert self.blocks._pool.host.num_used_blocks == 0


TestBlockManager = BlockManagerMachine.TestCase
TestBlockManager.settings = settings(derandomize=True, deadline=None, max_examples=120, stateful_step_count=40)


@pytest.mark.parametrize("seed", range(8))
def test_long_walks_through_crowded_steps_keep_every_sequence_its_content(seed: int) -> None:
    """Many operations to a step, most of them forks and moves: what short random programs seldom come to."""
    draw = random.Random(seed)
    machine = BlockManagerMachine()
    machine.start(
        num_blocks=draw.randint(6, 12),
        num_host_blocks=draw.randint(3, 8),
        enable_prefix_cache=seed % 3 > 0,
        num_shards=1 + seed % 4,
    )
    for _ in range(1500):
        walk(machine, draw)
        machine.no_block_leaks_or_has_two_states()
        machine.what_is_counted_of_a_table_is_right()
        machine.events_amount_to_what_is_held_on_either_tier()
        machine.pinned_content_stays_on_the_device()
    machine.teardown()


def walk(machine: BlockManagerMachine, draw: random.Random) -> None:
    tokens = draw.choices([0, 1], k=draw.randint(1, 9))
    subset = {index for index in range(6) if draw.random() < 0.5}
    name = draw.choices(
        ["admit", "schedule", "fork", "swap_out", "swap_in", "free", "step", "pin", "rebalance"],
        [3, 6, 4, 3, 4, 2, 3, 0.2, 2],
    )[0]
    if name == "step":
        machine.step()
    elif name == "admit" and len(machine.running) < 6:
        machine.admit(tokens, False)
    elif name == "pin" and machine.enable_prefix_cache:
        machine.unpin("a")
        machine.pin("b", [0, 0, *tokens])
    elif name == "free" and (machine.running or machine.swapped):
        machine.free(draw.randrange(99))
    elif name == "fork" and any(sequence not in machine.scheduled_sequences for sequence in machine.running):
        machine.fork(draw.randrange(99), tokens)
    elif name == "schedule" and machine.running:
        machine.schedule(draw.randrange(99), draw.randint(1, 3))
    elif name == "rebalance":
        machine.place([draw.randint(1, 5), *(draw.randint(0, 5) for _ in range(3))])
        machine.rebalance(draw.randint(1, 6))
    elif name == "swap_out" and machine.running:
        machine.swap_out(subset)
    elif name == "swap_in" and machine.swapped:
        machine.swap_in(subset)
