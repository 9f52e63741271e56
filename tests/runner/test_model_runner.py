import random
from array import array
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import SamplingParams
from headway.engine.batch import StepBatch
from headway.engine.sequence import Sequence
from headway.runner.model_runner import ModelRunner
from tests.checkpoints import make_checkpoint
from tests.models.oracle import check_entries, random_prompts, reference_logprobs
from tests.runner.stepper import Stepper

NUM_BLOCKS = 256
GREEDY = SamplingParams(max_tokens=24, temperature=0.0)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="module")
def runner(directory: Path) -> ModelRunner:
    return ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS, num_threads=1)


def prompts(num: int) -> list[list[int]]:
    generator = random.Random(2)
    return random_prompts(512, tuple(generator.randrange(1, 90) for _ in range(num)))


def test_prefills_and_decodes_mix_in_one_step(runner):
    alone = []
    for prompt in prompts(6):
        stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
        stepper.add(prompt, GREEDY)
        alone += stepper.run()
    together = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=11)
    for prompt in prompts(6):
        together.add(prompt, GREEDY)
        together.step()
        together.step()
    assert together.run() == alone


@pytest.mark.parametrize("family", ["qwen3", "opt", "gpt2"])
def test_float32_results_do_not_depend_on_the_batch_bit_for_bit(tmp_path, family):
    runner = ModelRunner(read_checkpoint(make_checkpoint(tmp_path, family)), num_blocks=NUM_BLOCKS, num_threads=1)
    sampling = SamplingParams(max_tokens=8, temperature=0.0, num_logprobs=4, num_prompt_logprobs=0)
    together = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=11)
    for prompt in prompts(5):
        together.add(prompt, sampling)
        together.step()
    together.run()
    for sequence in together.sequences:
        alone = Stepper(runner, num_blocks=NUM_BLOCKS)
        name = alone.add(sequence.token_ids[: sequence.num_prompt_tokens], sampling).request_id
        alone.run()
        assert alone.logprobs[name] == together.logprobs[sequence.request_id]
        assert alone.prompt_logprobs[name] == together.prompt_logprobs[sequence.request_id]


@pytest.mark.parametrize("block_size", [4, 16, 32])
def test_block_size_does_not_matter(directory, block_size):
    outputs = []
    for size in (16, block_size):
        runner = ModelRunner(read_checkpoint(directory), num_blocks=512, block_size=size)
        stepper = Stepper(runner, num_blocks=512, block_size=size)
        for prompt in prompts(4):
            stepper.add(prompt, GREEDY)
        outputs.append(stepper.run())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(max_tokens=24, seed=5, top_p=0.9)])
def test_a_preempted_sequence_goes_on_as_if_nothing_had_been(runner, sampling):
    undisturbed, disturbed = (Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=13) for _ in range(2))
    for prompt in prompts(3):
        undisturbed.add(prompt, sampling)
        disturbed.add(prompt, sampling)
    for _ in range(12):
        disturbed.step()
    disturbed.preempt(disturbed.sequences[1])
    assert disturbed.run() == undisturbed.run()


@pytest.mark.parametrize("chunk_size", [10_000, 7])
def test_prompt_logprobs_cover_all_but_the_first_token_once(directory, runner, chunk_size):
    reference = AutoModelForCausalLM.from_pretrained(directory).eval()
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=chunk_size)
    sampling = SamplingParams(max_tokens=5, temperature=0.0, num_prompt_logprobs=2)
    scored = [stepper.add(prompt, sampling) for prompt in prompts(3)]
    plain = stepper.add([1, 2, 3], GREEDY)
    stepper.run()
    for sequence in scored:
        prompt = sequence.token_ids[: sequence.num_prompt_tokens]
        entries = stepper.prompt_logprobs[sequence.request_id]
        check_entries(entries, reference_logprobs(reference, prompt), prompt[1:])
        assert all(len(entry.top) == 2 for entry in entries)
    assert stepper.prompt_logprobs[plain.request_id] == []


def test_long_prompts_are_scored_in_chunks(runner, monkeypatch):
    def scored() -> list[float]:
        stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
        sampling = SamplingParams(max_tokens=1, temperature=0.0, num_prompt_logprobs=0)
        sequence = stepper.add(prompts(1)[0] * 3, sampling)
        stepper.run()
        return [entry.logprob for entry in stepper.prompt_logprobs[sequence.request_id]]

    whole = scored()
    monkeypatch.setattr("headway.runner.shard_runner._MAX_LOGITS", 512 * 5)
    assert scored() == pytest.approx(whole, abs=1e-5)


def test_measured_step_leaves_the_pool_alone_and_takes_time(runner):
    before = runner._shard._pool.memory.clone()
    assert runner.measure(prefill_tokens=40, num_decodes=3, context_tokens=50) > 0
    assert runner.measure(prefill_tokens=0, num_decodes=1, context_tokens=10) > 0
    assert runner.measure(prefill_tokens=16, num_decodes=0, context_tokens=0) > 0
    assert torch.equal(runner._shard._pool.memory.nan_to_num(), before.nan_to_num())


def test_sizes_are_those_of_the_model(runner, directory):
    on_disk = read_checkpoint(directory).weight_bytes
    assert runner.weight_bytes == pytest.approx(on_disk, rel=0.1)
    assert runner.kv_bytes_per_block == runner._shard._pool.memory.nbytes // NUM_BLOCKS


def test_bfloat16_stays_close_to_float32(directory, runner):
    narrow = ModelRunner(read_checkpoint(directory, dtype="bfloat16"), num_blocks=NUM_BLOCKS)
    scores = []
    for candidate in (runner, narrow):
        stepper = Stepper(candidate, num_blocks=NUM_BLOCKS, chunk_size=10)
        sampling = SamplingParams(max_tokens=1, temperature=0.0, num_prompt_logprobs=0)
        sequence = stepper.add(prompts(1)[0], sampling)
        stepper.run()
        scores.append([entry.logprob for entry in stepper.prompt_logprobs[sequence.request_id]])
    assert scores[1] == pytest.approx(scores[0], abs=0.3)


def plain_output(runner: ModelRunner, prompt: list[int], sampling: SamplingParams) -> list[int]:
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
    stepper.add(prompt, sampling)
    return stepper.run()[0]


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(max_tokens=24, seed=5, top_p=0.9)])
def test_drafts_right_and_wrong_leave_the_output_as_it_is_in_fewer_steps(runner, sampling):
    outputs = {tuple(prompt): plain_output(runner, prompt, sampling) for prompt in prompts(4)}

    def mostly_right(sequence: Sequence) -> tuple[int, ...]:
        output = outputs[tuple(sequence.token_ids[: sequence.num_prompt_tokens])]
        drafts = output[sequence.num_output_tokens :][:5]
        return tuple(token if token % 5 else (token + 1) % 512 for token in drafts)

    stepper = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=11, drafter=mostly_right)
    for prompt in outputs:
        stepper.add(list(prompt), sampling)
    assert stepper.run() == list(outputs.values())
    assert stepper.num_steps < 24


def test_tokens_that_need_no_logits_are_those_of_the_largest_logits(runner):
    """In a batch with others of every kind, with drafts or without; who asks for log probabilities gets all logits."""
    kinds = [
        GREEDY,
        SamplingParams(max_tokens=24, seed=5, top_p=0.9),
        SamplingParams(max_tokens=24, temperature=0.0, num_logprobs=2),
        SamplingParams(max_tokens=24, temperature=0.0, repetition_penalty=1.3),
        SamplingParams(max_tokens=24, temperature=0.0, num_prompt_logprobs=0),
    ]
    alone = [plain_output(runner, prompt, sampling) for prompt, sampling in zip(prompts(5), kinds, strict=True)]
    for drafter in (lambda sequence: (), lambda sequence: tuple(sequence.token_ids[-2:])):
        together = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=11, drafter=drafter)
        for prompt, sampling in zip(prompts(5), kinds, strict=True):
            together.add(prompt, sampling)
            together.step()
        assert together.run() == alone
    with_logits = SamplingParams(max_tokens=24, temperature=0.0, num_logprobs=0)
    for index in (0, 2, 4):
        assert plain_output(runner, prompts(5)[index], with_logits) == alone[index]


def test_a_batch_may_hold_copies_only(directory):
    runner = ModelRunner(read_checkpoint(directory), num_blocks=8, num_host_blocks=4)
    runner.start(StepBatch([], 0, swap_out=[(1, 2)], swap_in=[(2, 3)], block_copies=[(3, 4)]))
    result = runner.finish()
    assert result.samples == []
    assert result.copy_s > 0
    runner.start(StepBatch([], 0))
    assert runner.finish().copy_s == 0


def test_a_sequence_that_moves_through_the_host_goes_on_as_before(directory):
    runner = ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS, num_host_blocks=8)
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
    sequence = stepper.add(prompts(3)[2], GREEDY)
    for _ in range(10):
        stepper.step()
    blocks = sequence.block_table
    host_blocks = list(range(len(blocks)))
    sequence.block_table = array("i", [stepper.take_block() for _ in blocks])
    out = list(zip(blocks, host_blocks, strict=True))
    back = list(zip(host_blocks, sequence.block_table, strict=True))
    # Other content takes the old blocks in the same step.
    others = [(stepper.take_block(), block) for block in blocks]
    runner.start(StepBatch([], 0, swap_out=out, swap_in=back, block_copies=others))
    runner.finish()
    assert stepper.run()[0] == plain_output(runner, prompts(3)[2], GREEDY)
