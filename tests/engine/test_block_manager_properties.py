"""Random operations on the block manager, against a model that remembers what each block holds."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.core.block_hash import block_hashes
from headway.core.request import SamplingParams
from headway.engine.block_manager import BlockManager
from headway.engine.events import BlockStored
from headway.engine.sequence import Sequence

BLOCK_SIZE = 2
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=12)  # few tokens: prefixes meet often


class BlockManagerMachine(RuleBasedStateMachine):
    """Sequences come, grow, are computed and go in any order, as no scheduler would have them."""

    @initialize(num_blocks=st.integers(1, 12), enable_prefix_cache=st.booleans())
    def start(self, num_blocks: int, enable_prefix_cache: bool) -> None:
        self.blocks = BlockManager(num_blocks, block_size=BLOCK_SIZE, enable_prefix_cache=enable_prefix_cache)
        self.enable_prefix_cache = enable_prefix_cache
        self.sequences: list[Sequence] = []
        self.content: dict[int, list[int]] = {}  # block -> all tokens up to its end, as last computed into it
        self.stored: dict[bytes, bytes] = {}  # the prefix index, as a reader of the events has it
        self.last_event = 0

    def pick(self, index: int) -> Sequence:
        return self.sequences[index % len(self.sequences)]

    @rule(tokens=TOKENS, wants_prompt_logprobs=st.booleans())
    def admit(self, tokens: list[int], wants_prompt_logprobs: bool) -> None:
        sampling = SamplingParams(num_prompt_logprobs=0 if wants_prompt_logprobs else None)
        sequence = Sequence("s", tokens, len(tokens), sampling, arrival_s=0.0)
        prefix = self.blocks.find_prefix(sequence)
        if prefix:
            assert self.enable_prefix_cache
            assert not sequence.owes_prompt_logprobs
        assert len(prefix) * BLOCK_SIZE < len(tokens)
        for index, block in enumerate(prefix):
            assert self.content[block] == tokens[: (index + 1) * BLOCK_SIZE]
        fits = self.blocks.fits(prefix=prefix, num_tokens=len(tokens), num_reserved=0)
        self.blocks.adopt(sequence, prefix=prefix)
        assert self.blocks.grow(sequence, num_tokens=len(tokens)) == fits
        self.sequences.append(sequence)

    @precondition(lambda self: self.sequences)
    @rule(index=st.integers(0, 99), num_tokens=st.integers(1, 6))
    def compute(self, index: int, num_tokens: int) -> None:
        sequence = self.pick(index)
        start = sequence.num_computed_tokens
        end = min(start + num_tokens, len(sequence), len(sequence.block_table) * BLOCK_SIZE)
        for position in range(start, end):
            block = sequence.block_table[position // BLOCK_SIZE]
            sharers = [other for other in self.sequences if block in other.block_table]
            assert sharers == [sequence], "a block that others hold is written"
            self.content[block] = sequence.token_ids[: position + 1]
        sequence.num_computed_tokens = end
        self.blocks.publish(sequence)

    @precondition(lambda self: self.sequences)
    @rule(index=st.integers(0, 99), token=st.integers(0, 1))
    def append(self, index: int, token: int) -> None:
        sequence = self.pick(index)
        sequence.token_ids.append(token)
        table, available = list(sequence.block_table), self.blocks.num_available_blocks
        num_missing = -(-len(sequence) // BLOCK_SIZE) - len(table)
        assert self.blocks.grow(sequence, num_tokens=len(sequence)) == (num_missing <= available)
        assert sequence.block_table[: len(table)] == table

    @precondition(lambda self: self.sequences)
    @rule(index=st.integers(0, 99))
    def free(self, index: int) -> None:
        sequence = self.pick(index)
        self.sequences.remove(sequence)
        self.blocks.free(sequence)
        assert (sequence.block_table, sequence.num_computed_tokens) == ([], 0)

    @invariant()
    def no_block_leaks_or_has_two_states(self) -> None:
        self.blocks.check_integrity(sequence.block_table for sequence in self.sequences)
        held = {block for sequence in self.sequences for block in sequence.block_table}
        assert self.blocks.num_used_blocks == len(held)

    @invariant()
    def computed_tokens_stay_in_place(self) -> None:
        for sequence in self.sequences:
            for index in range(sequence.num_computed_tokens // BLOCK_SIZE):
                end = (index + 1) * BLOCK_SIZE
                assert self.content[sequence.block_table[index]] == sequence.token_ids[:end]

    @invariant()
    def events_amount_to_what_is_cached(self) -> None:
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
        names = {block: name for block, name in enumerate(self.blocks._hash_of) if name is not None}
        assert set(names.values()) == set(self.stored)
        for block, name in names.items():
            parent, own = [b"", *block_hashes(self.content[block], block_size=BLOCK_SIZE)][-2:]
            assert (name, self.stored[name]) == (own, parent)

    def teardown(self) -> None:
        if not hasattr(self, "blocks"):
            return
        for sequence in self.sequences:
            self.blocks.free(sequence)
        self.blocks.check_integrity([])
        assert self.blocks.num_available_blocks == self.blocks.num_blocks


TestBlockManager = BlockManagerMachine.TestCase
TestBlockManager.settings = settings(derandomize=True, deadline=None, max_examples=120, stateful_step_count=40)
