from dataclasses import replace

import numpy as np
import pytest
import torch

from headway.kernels import DecodeTable
from headway.models.attention import AttentionContext
from headway.runner.decode_plans import DecodePlans, decode_rows
from headway.runner.inputs import StepInput
from headway.runner.step_buffers import StepBuffers
from headway.runner.step_graphs import StepGraphs, graph_sizes
from headway.runner.step_message import ModelInput
from tests.runner.rerun import Rerun

CPU = torch.device("cpu")


def words(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def model_input_of(
    counts: list[int], *, starts: list[int], sampled: list[int], scored: tuple[int, ...] = ()
) -> ModelInput:
    """Sequences with blocks of 4 tokens, which are numbered from 1 on in the order of the sequences."""
    num_blocks = sum(-(-(start + count) // 4) for start, count in zip(starts, counts, strict=True))
    return ModelInput(
        token_ids=words(*range(100, 100 + sum(counts))),
        first_positions=words(*starts),
        counts=words(*counts),
        blocks=words(*range(1, 1 + num_blocks)),
        sampled_rows=words(*sampled),
        scored_rows=words(*scored),
    )


def step_of(counts: list[int], *, starts: list[int]) -> StepInput:
    return StepInput.of(model_input_of(counts, starts=starts, sampled=[]), block_size=4)


@pytest.mark.parametrize(
    ("max_num_rows", "sizes"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (8, [1, 2, 4, 8]),
        (30, [1, 2, 4, 8, 16, 24, 30]),
        (32, [1, 2, 4, 8, 16, 24, 32]),
    ],
)
def test_sizes_grow_up_to_the_largest_batch(max_num_rows, sizes):
    assert graph_sizes(max_num_rows) == sizes


def test_decode_steps_are_those_of_single_tokens_without_prompt_log_probabilities():
    assert model_input_of([1, 1], starts=[5, 9], sampled=[0, 1]).is_decode
    assert model_input_of([1, 1], starts=[5, 9], sampled=[1]).is_decode, (
        "a chunk of one token, of which nothing is wanted"
    )
    assert not model_input_of([1, 2], starts=[5, 0], sampled=[0, 2]).is_decode
    assert not model_input_of([1, 1], starts=[5, 9], sampled=[0, 1], scored=(0,)).is_decode


def test_the_decodes_of_a_step_are_those_before_the_first_chunk():
    assert step_of([1, 1, 3, 1], starts=[5, 9, 0, 7]).num_decodes == 2
    assert step_of([3, 1], starts=[0, 7]).num_decodes == 0
    assert step_of([1], starts=[7]).num_decodes == 1


def test_rows_see_their_keys_and_the_padding_none():
    step = step_of([1, 1], starts=[5, 9])
    rows = decode_rows(step, None, num_decodes=2, num_rows=4)
    assert rows.end_keys.tolist() == [6, 10, 0, 0]
    assert rows.first_keys.tolist() == [0, 0, 0, 0]
    assert rows.positions.tolist() == [5, 9, 0, 0]
    assert decode_rows(step, 7, num_decodes=2, num_rows=4).first_keys.tolist() == [0, 3, 0, 0]


def test_of_a_part_of_the_cache_rows_see_what_their_spans_say():
    spans = np.array([[1, 6], [0, 0], [2, 9]], np.int32)
    step = replace(step_of([1, 1, 1], starts=[5, 9, 2]), key_spans={7: spans})
    rows = decode_rows(step, 7, num_decodes=3, num_rows=3)
    assert rows.first_keys.tolist() == [1, 0, 2]
    assert rows.end_keys.tolist() == [6, 0, 9]


class Pool:
    """Graphs that note what they would compute on: hidden states are the token ids."""

    def __init__(self, *, max_num_rows: int, max_num_blocks: int, num_rows: int | None = None) -> None:
        self.capture = Rerun()
        self.seen: list[tuple[list[int], AttentionContext]] = []
        self.plans = DecodePlans(
            {None: DecodeTable.allocate(num_rows=max_num_rows, num_heads=2, head_dim=16, num_slots=4, device=CPU)}
        )
        buffers = StepBuffers(max_num_rows=max_num_rows, max_num_blocks=max_num_blocks, device=CPU)
        self.graphs = StepGraphs(
            buffers,
            plans=self.plans,
            hidden=torch.zeros(max_num_rows, 1),
            compute=self._compute,
            capture=self.capture,
            block_size=4,
            num_rows=num_rows,
        )
        self.seen.clear()

    def _compute(self, token_ids: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        self.seen.append((token_ids.tolist(), context))
        return token_ids[:, None].float()


def test_a_step_is_padded_to_the_next_size_with_rows_that_leave_nothing_behind():
    pool = Pool(max_num_rows=6, max_num_blocks=4)
    assert pool.capture.num_captured == 4
    replayed = pool.graphs.replay(model_input_of([1, 1, 1], starts=[5, 9, 2], sampled=[0, 1, 2]))
    assert replayed is not None
    assert replayed.hidden.tolist() == [[100], [101], [102]]
    (token_ids, context), decodes = pool.seen[0], pool.seen[0][1].decodes
    assert token_ids == [100, 101, 102, 0]
    assert context.positions.tolist() == [5, 9, 2, 0]
    assert context.slot_mapping.tolist() == [2 * 4 + 1, 5 * 4 + 1, 6 * 4 + 2, -1]
    assert decodes is not None
    assert decodes.block_tables[:3, :3].tolist() == [[1, 2, 0], [3, 4, 5], [6, 0, 0]]
    planned = decodes.tables[None].work[:4]
    assert sorted(planned[:, [0, 2, 3]].tolist()) == [[0, 0, 6], [1, 0, 10], [2, 0, 3], [3, 0, 0]]


def test_content_changes_and_places_stay():
    pool = Pool(max_num_rows=4, max_num_blocks=4)
    pool.graphs.replay(model_input_of([1, 1], starts=[5, 9], sampled=[0, 1]))
    pool.graphs.replay(model_input_of([1, 1], starts=[2, 0], sampled=[0, 1]))
    (_, before), (_, after) = pool.seen
    assert before.decodes is not None
    assert after.decodes is not None
    assert after.positions.tolist() == [2, 0]
    for one, other in (
        (before.positions, after.positions),
        (before.slot_mapping, after.slot_mapping),
        (before.decodes.block_tables, after.decodes.block_tables),
        (before.decodes.tables[None].work, after.decodes.tables[None].work),
        (before.decodes.tables[None].starts, after.decodes.tables[None].starts),
    ):
        assert one.data_ptr() == other.data_ptr()


def test_what_has_no_room_in_the_buffers_is_not_served():
    graphs = Pool(max_num_rows=2, max_num_blocks=2).graphs
    assert graphs.replay(model_input_of([1, 1], starts=[5, 3], sampled=[0, 1])) is not None
    assert graphs.replay(model_input_of([1, 1, 1], starts=[5, 3, 1], sampled=[0, 1, 2])) is None
    assert graphs.replay(model_input_of([1], starts=[8], sampled=[0])) is None


def test_steps_of_one_size_only_are_captured_where_no_others_come():
    pool = Pool(max_num_rows=6, max_num_blocks=4, num_rows=3)
    assert pool.capture.num_captured == 1
    assert pool.graphs.replay(model_input_of([1, 1, 1], starts=[5, 9, 2], sampled=[0, 1, 2])) is not None
    assert pool.graphs.replay(model_input_of([1] * 5, starts=[2] * 5, sampled=[0])) is None
