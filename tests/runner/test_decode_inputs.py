"""The inputs of decode steps as a kernel lays them out: those that `StepInput` has."""

import random

import numpy as np
import pytest
import torch

from headway.kernels import DecodeInputs
from headway.runner.inputs import StepInput
from headway.runner.step_buffers import StepBuffers
from headway.runner.step_message import ModelInput

MAX_ROWS, MAX_BLOCKS = 9, 6


def random_model_input(rng: random.Random, *, num_rows: int, block_size: int) -> ModelInput:
    positions = [rng.randrange(MAX_BLOCKS * block_size) for _ in range(num_rows)]
    num_blocks = sum(position // block_size + 1 for position in positions)
    nothing = np.zeros(0, np.int32)
    return ModelInput(
        token_ids=np.array([rng.randrange(1000) for _ in positions], np.int32),
        first_positions=np.array(positions, np.int32),
        counts=np.ones(num_rows, np.int32),
        blocks=np.array([rng.randrange(500) for _ in range(num_blocks)], np.int32),
        sampled_rows=nothing,
        scored_rows=nothing,
    )


def load(inputs: DecodeInputs, model_input: ModelInput, *, block_size: int) -> bool:
    return inputs.load(model_input.token_ids, model_input.first_positions, model_input.blocks, block_size=block_size)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("num_rows", [1, 3, MAX_ROWS])
def test_they_are_those_of_a_step_input(num_rows: int, block_size: int) -> None:
    rng = random.Random(block_size)
    inputs = StepBuffers(max_num_rows=MAX_ROWS, max_num_blocks=MAX_BLOCKS, device=torch.device("cpu")).inputs
    for _ in range(5):
        model_input = random_model_input(rng, num_rows=num_rows, block_size=block_size)
        assert load(inputs, model_input, block_size=block_size)
        expected = StepInput.of(model_input, block_size=block_size)
        assert inputs.token_ids[:num_rows].tolist() == expected.token_ids.tolist()
        assert inputs.positions[:num_rows].tolist() == expected.positions.tolist()
        assert inputs.slot_mapping[:num_rows].tolist() == expected.slot_mapping.tolist()
        assert inputs.seq_lens[:num_rows].tolist() == expected.seq_lens.tolist()
        for row, (table, length) in enumerate(zip(expected.block_tables, expected.seq_lens, strict=True)):
            num_blocks = -(-length // block_size)
            assert inputs.block_tables[row, :num_blocks].tolist() == table[:num_blocks].tolist()


def test_what_has_no_room_is_not_taken() -> None:
    inputs = StepBuffers(max_num_rows=2, max_num_blocks=3, device=torch.device("cpu")).inputs
    words = [np.array(values, np.int32) for values in ((7, 8, 9), (0, 1, 2), (4, 5, 6), (12,), (1, 2, 3, 4))]
    token_ids, positions, blocks, far, table = words
    assert inputs.load(token_ids[:2], positions[:2], blocks[:2], block_size=4)
    assert not inputs.load(token_ids, positions, blocks, block_size=4)
    assert not inputs.load(token_ids[:1], far, table, block_size=4)


@pytest.mark.parametrize("num_blocks", [1, 3])
def test_blocks_must_be_those_that_the_positions_need(num_blocks: int) -> None:
    inputs = StepBuffers(max_num_rows=2, max_num_blocks=3, device=torch.device("cpu")).inputs
    blocks = np.arange(num_blocks, dtype=np.int32)
    with pytest.raises(ValueError, match=f"blocks must hold what the positions need; it has {num_blocks}"):
        inputs.load(np.zeros(2, np.int32), np.array([0, 3], np.int32), blocks, block_size=4)
