import pytest
import torch
from transformers import AutoModelForCausalLM

from headway.core.model import RopeSpec
from headway.core.request import SamplingParams
from headway.models.rotary import rotary_table
from tests.checkpoints import make_checkpoint
from tests.models.oracle import NUM_BLOCKS, check_against_transformers, load_runner, random_prompts
from tests.runner.stepper import Stepper

SCALINGS = {
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 128},
    "dynamic": {"factor": 2.0},
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_scaled_rotation_equals_transformers(tmp_path, kind):
    rope = {"rope_type": kind, "rope_theta": 10_000.0, **SCALINGS[kind]}
    check_against_transformers(make_checkpoint(tmp_path, "llama", rope_parameters=rope))


def test_yarn_without_whole_dimensions_equals_transformers(tmp_path):
    rope = {"rope_type": "yarn", "rope_theta": 500.0, "truncate": False, **SCALINGS["yarn"]}
    check_against_transformers(make_checkpoint(tmp_path, "llama", rope_parameters=rope))


@pytest.mark.parametrize("chunk_size", [10_000, 9])
def test_dynamic_scaling_grows_as_a_sequence_passes_the_trained_length(tmp_path, chunk_size):
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    directory = make_checkpoint(tmp_path, "llama", rope_parameters=rope, max_position_embeddings=48)
    runner = load_runner(directory)
    prompt = random_prompts(runner.spec.vocab_size, (40,))[0]
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=chunk_size)
    stepper.add(prompt, SamplingParams(max_tokens=40, temperature=0.0))
    reference = AutoModelForCausalLM.from_pretrained(directory).eval()
    expected = reference.generate(
        torch.tensor([prompt]), max_new_tokens=40, min_new_tokens=40, do_sample=False, suppress_tokens=[]
    )
    assert runner.spec.max_position == 96
    assert stepper.run()[0] == expected[0, 40:].tolist()


def test_table_holds_cosines_then_sines():
    table = rotary_table(RopeSpec(theta=10_000.0, rotary_dim=8, original_max_position=32), 32)
    assert table.shape == (32, 8)
    assert table.dtype == torch.float32
    torch.testing.assert_close(table[0], torch.tensor([1.0] * 4 + [0.0] * 4))
    torch.testing.assert_close(table[:, 0] ** 2 + table[:, 4] ** 2, torch.ones(32))
