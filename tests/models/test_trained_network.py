"""The network that is trained and the model that serves are two, of one spec and one directory: they say the same."""

from pathlib import Path

import torch

from headway.checkpoint.model_directory import read_spec
from headway.checkpoint.names import checkpoint_name
from headway.core.request import SamplingParams
from headway.profiler.capture.checkpoint_weights import read_weights
from headway.profiler.zoo.networks.decoder import Decoder
from tests.checkpoints import make_checkpoint
from tests.models.oracle import NUM_BLOCKS, check_entries, load_runner, random_prompts
from tests.runner.stepper import Stepper


@torch.no_grad()
def test_what_was_trained_is_what_is_served(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "model", "llama")
    network = Decoder(read_spec(directory))
    names = {name: checkpoint_name(name) for name, _ in network.named_parameters()}
    read = read_weights(directory, list(names.values()))
    network.load_state_dict({name: read[known] for name, known in names.items()})
    runner = load_runner(directory)
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
    prompts = random_prompts(runner.spec.vocab_size, (5, 33))
    sampling = SamplingParams(max_tokens=4, temperature=0.0, num_logprobs=1)
    sequences = [stepper.add(prompt, sampling) for prompt in prompts]
    for sequence, prompt, output in zip(sequences, prompts, stepper.run(), strict=True):
        expected = network(torch.tensor([prompt + output]))[0].log_softmax(dim=1)[len(prompt) - 1 : -1]
        assert output == expected.argmax(dim=1).tolist()
        check_entries(stepper.logprobs[sequence.request_id], expected, output)
