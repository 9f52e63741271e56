"""A shard's view of a step, against token-by-token counting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.parallel_config import Span
from headway.runner.inputs import StepInput
from headway.runner.step_message import ModelInput

BLOCK_SIZE = 4
NUM_BLOCKS = 12  # of a shard


@st.composite
def steps(draw):
    """(first positions, counts, tables of global block ids, number of shards)."""
    num_shards = draw(st.integers(1, 3))
    free = draw(st.permutations(range(num_shards * NUM_BLOCKS)))
    firsts, counts, tables = [], [], []
    for _ in range(draw(st.integers(1, 3))):
        first, count = draw(st.integers(0, 20)), draw(st.integers(1, 9))
        num_blocks = -(-(first + count) // BLOCK_SIZE)
        if num_blocks > len(free):
            break
        tables.append([free.pop() for _ in range(num_blocks)])
        firsts.append(first)
        counts.append(count)
    return firsts, counts, tables, num_shards


def model_input_of(firsts, counts, tables) -> ModelInput:
    def words(values):
        return np.array(values, np.int32)

    return ModelInput(
        token_ids=np.zeros(sum(counts), np.int32),
        first_positions=words(firsts),
        counts=words(counts),
        blocks=words([block for table in tables for block in table]),
        sampled_rows=words([]),
        scored_rows=words([]),
    )


@settings(max_examples=150, deadline=None)
@given(steps(), st.sampled_from([None, 1, 3, 7, 100]))
def test_each_token_lies_on_one_shard_and_is_seen_there_by_those_that_may(step, window):
    firsts, counts, tables, num_shards = step
    model_input = model_input_of(firsts, counts, tables)
    for shard in range(num_shards):
        blocks = Span(shard * NUM_BLOCKS, (shard + 1) * NUM_BLOCKS)
        here = StepInput.of(model_input, block_size=BLOCK_SIZE, blocks=blocks, windows=frozenset({window}))
        row = 0
        for index, (first, count, table) in enumerate(zip(firsts, counts, tables, strict=True)):
            own = [block for block in table if block in blocks]
            own_positions = [position for position in range(first + count) if table[position // BLOCK_SIZE] in blocks]
            assert here.block_tables[index].tolist()[: len(own)] == [block - blocks.start for block in own]
            assert here.seq_lens[index] == len(own_positions)
            for position in range(first, first + count):
                block = table[position // BLOCK_SIZE]
                slot = (block - blocks.start) * BLOCK_SIZE + position % BLOCK_SIZE if block in blocks else -1
                assert here.slot_mapping[row] == slot
                oldest = 0 if window is None else position + 1 - window
                seen = [place for place, other in enumerate(own_positions) if oldest <= other <= position]
                start, end = here.key_spans[window][row]
                assert list(range(start, end)) == seen
                row += 1


def test_an_undivided_cache_looks_the_same_as_a_shard_that_has_all():
    model_input = model_input_of([3, 0], [2, 5], [[7, 2], [1, 0]])
    whole = StepInput.of(model_input, block_size=BLOCK_SIZE)
    shard = StepInput.of(model_input, block_size=BLOCK_SIZE, blocks=Span(0, NUM_BLOCKS), windows=frozenset({None}))
    for name in ("token_ids", "positions", "slot_mapping", "block_tables", "seq_lens", "query_start"):
        assert getattr(whole, name).tolist() == getattr(shard, name).tolist()
    assert shard.key_spans[None].tolist() == [[0, 4], [0, 5], [0, 1], [0, 2], [0, 3], [0, 4], [0, 5]]
    assert shard.num_keys == 24


@pytest.mark.parametrize("dtype", ["int32"])
def test_types_are_those_of_the_kernels(dtype):
    shard = StepInput.of(model_input_of([0], [2], [[5]]), block_size=4, blocks=Span(6, 12), windows=frozenset({None}))
    assert shard.block_tables.shape == (1, 0)
    assert {array.dtype for array in (shard.block_tables, shard.seq_lens, shard.key_spans[None])} == {np.dtype(dtype)}
    assert shard.slot_mapping.tolist() == [-1, -1]
