from array import array

import numpy as np
import pytest

from headway.core.request import BeamSearch, Guide, GuideKind, SamplingParams
from headway.engine.batch import ScheduledSequence, StepBatch
from headway.engine.sequence import Sequence
from headway.runner.inputs import StepInput, flatten

BLOCK_SIZE = 4


GREEDY = SamplingParams(temperature=0.0)


def schedule(
    tokens: list[int],
    *,
    num_computed: int,
    num_new: int,
    blocks: list[int],
    sampling: SamplingParams | None = None,
) -> ScheduledSequence:
    sequence = Sequence("request", tokens, len(tokens), sampling or SamplingParams(), arrival_s=0.0)
    sequence.num_computed_tokens = num_computed
    sequence.block_table = array("i", blocks)
    return ScheduledSequence(sequence, num_new, samples=num_computed + num_new == len(tokens))


def build(batch: StepBatch) -> StepInput:
    return StepInput.of(flatten(batch, block_size=BLOCK_SIZE), block_size=BLOCK_SIZE)


@pytest.fixture
def step() -> StepInput:
    """A decode at position 6, a middle chunk of positions 2 to 4, and a whole prompt."""
    scheduled_sequences = [
        schedule(list(range(100, 107)), num_computed=6, num_new=1, blocks=[9, 3]),
        schedule(list(range(200, 210)), num_computed=2, num_new=3, blocks=[5, 0, 7]),
        schedule([300, 301], num_computed=0, num_new=2, blocks=[8]),
    ]
    return build(StepBatch(scheduled_sequences, num_tokens=6))


def test_tokens_and_positions_follow_each_other(step):
    assert step.token_ids.tolist() == [106, 202, 203, 204, 300, 301]
    assert step.positions.tolist() == [6, 2, 3, 4, 0, 1]


def test_slots_lie_in_the_sequences_own_blocks(step):
    assert step.slot_mapping.tolist() == [3 * 4 + 2, 5 * 4 + 2, 5 * 4 + 3, 0 * 4 + 0, 8 * 4 + 0, 8 * 4 + 1]


def test_block_tables_hold_only_the_blocks_in_use(step):
    assert step.block_tables.tolist() == [[9, 3], [5, 0], [8, 0]]


def test_lengths_count_the_new_tokens(step):
    assert step.seq_lens.tolist() == [7, 5, 2]
    assert step.query_start.tolist() == [0, 1, 4, 6]


def test_types_are_those_of_the_kernels(step):
    assert {array.dtype for array in (step.token_ids, step.positions, step.slot_mapping)} == {np.dtype("int64")}
    assert {array.dtype for array in (step.block_tables, step.seq_lens, step.query_start)} == {np.dtype("int32")}


def test_drafts_follow_the_last_known_token_and_are_sampled_too():
    decode = schedule(list(range(100, 107)), num_computed=6, num_new=1, blocks=[9, 3, 4])
    decode.draft_token_ids, decode.num_new_tokens = (7, 8), 3
    chunk = schedule(list(range(200, 210)), num_computed=2, num_new=3, blocks=[5, 0])
    batch = StepBatch([decode, chunk, decode], num_tokens=9)
    step = build(batch)
    assert step.token_ids.tolist() == [106, 7, 8, 202, 203, 204, 106, 7, 8]
    assert step.positions.tolist() == [6, 7, 8, 2, 3, 4, 6, 7, 8]
    assert step.slot_mapping.tolist()[:3] == [3 * 4 + 2, 3 * 4 + 3, 4 * 4 + 0]
    assert step.seq_lens.tolist() == [9, 5, 9]
    assert flatten(batch, block_size=BLOCK_SIZE).sampled_rows.tolist() == [0, 1, 2, 6, 7, 8]


def test_the_model_input_is_the_least_that_all_else_follows_from():
    chunk = schedule(list(range(200, 210)), num_computed=2, num_new=3, blocks=[5, 0, 7])
    prompt = schedule([300, 301], num_computed=0, num_new=2, blocks=[8])
    model_input = flatten(StepBatch([chunk, prompt], num_tokens=5), block_size=BLOCK_SIZE)
    assert model_input.token_ids.tolist() == [202, 203, 204, 300, 301]
    assert model_input.first_positions.tolist() == [2, 0]
    assert model_input.counts.tolist() == [3, 2]
    assert model_input.blocks.tolist() == [5, 0, 8]
    assert model_input.sampled_rows.tolist() == [4]
    assert model_input.scored_rows.tolist() == []
    arrays = (
        model_input.token_ids,
        model_input.first_positions,
        model_input.counts,
        model_input.blocks,
        model_input.sampled_rows,
        model_input.scored_rows,
    )
    assert {array.dtype for array in arrays} == {np.dtype("int32")}


def test_scored_rows_precede_prompt_tokens():
    """Of a whole prompt all but the last, of a chunk all, of a decode none, and none where nobody asks."""
    asked = SamplingParams(num_prompt_logprobs=0)
    whole, chunk, decode, plain = (
        schedule([1, 2, 3], num_computed=0, num_new=3, blocks=[0]),
        schedule(list(range(9)), num_computed=4, num_new=3, blocks=[1, 2]),
        schedule(list(range(9)), num_computed=8, num_new=1, blocks=[3, 4, 5]),
        schedule([1, 2, 3], num_computed=0, num_new=3, blocks=[6]),
    )
    for scheduled in (whole, chunk, decode):
        scheduled.sequence.sampling = asked
    model_input = flatten(StepBatch([plain, whole, chunk, decode], num_tokens=10), block_size=BLOCK_SIZE)
    assert model_input.scored_rows.tolist() == [3, 4, 6, 7, 8]
    assert model_input.sampled_rows.tolist() == [2, 5, 9]


def test_sequences_that_want_best_tokens_only_are_told_apart():
    decode = schedule(list(range(100, 107)), num_computed=6, num_new=1, blocks=[9, 3, 4])
    drafted = schedule(list(range(200, 207)), num_computed=6, num_new=1, blocks=[5, 0, 6], sampling=GREEDY)
    drafted.draft_token_ids, drafted.num_new_tokens = (7, 8), 3
    chunk = schedule(list(range(200, 210)), num_computed=2, num_new=3, blocks=[5, 0, 7], sampling=GREEDY)
    prompt = schedule([300, 301], num_computed=0, num_new=2, blocks=[8], sampling=GREEDY)
    batch = StepBatch([decode, drafted, chunk, prompt], num_tokens=9)
    model_input = flatten(batch, block_size=BLOCK_SIZE, finds_best=True)
    assert model_input.sampled_rows.tolist() == [0]
    assert model_input.best_rows.tolist() == [1, 2, 3, 8]
    assert flatten(batch, block_size=BLOCK_SIZE).best_rows.tolist() == []


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.5},
        {"num_logprobs": 0},
        {"min_tokens": 2},
        {"logit_bias": ((3, 1.0),)},
        {"bad_token_ids": ((3,),)},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"beam": BeamSearch(width=2)},
        {"guide": Guide(GuideKind.REGEX, "a+")},
    ],
    ids=str,
)
def test_whatever_changes_logits_or_shows_them_wants_more_than_the_best_token(options):
    assert SamplingParams(temperature=0.0, top_p=0.5, top_k=3, seed=4, num_prompt_logprobs=1).wants_best
    assert not SamplingParams(**{"temperature": 0.0, **options}).wants_best


def test_followers_are_sampled_with_their_leader():
    prompt = schedule([300, 301], num_computed=0, num_new=2, blocks=[8], sampling=GREEDY)
    assert prompt.wants_best
    prompt.followers = (prompt.sequence,)
    assert not prompt.wants_best
