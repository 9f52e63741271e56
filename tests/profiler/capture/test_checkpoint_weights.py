"""Checkpoints that training begins with: read into the network that is captured, it computes what transformers does."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from headway.checkpoint.model_directory import read_spec
from headway.core.capture import CaptureRequest
from headway.core.errors import HeadwayError
from headway.core.initial_weights import WeightsRequest
from headway.profiler.capture.weights import write_weights
from headway.profiler.zoo.networks.decoder import Decoder
from tests.profiler.capture.test_decoder import CONFIGS

_SMALL = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64,
}  # fmt: skip
TRAINED: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**_SMALL, mlp_bias=True),
    "mistral": MistralConfig(**_SMALL, sliding_window=64),
    "qwen2": Qwen2Config(**_SMALL, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**_SMALL, head_dim=8, rms_norm_eps=1e-6),
}


def saved(config: PreTrainedConfig, directory: Path) -> torch.nn.Module:
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)  # biases too, which are zero otherwise
    model.save_pretrained(directory)
    return model  # type: ignore[no-any-return]


def weights(directory: Path, out: Path, *, seq: int = 16) -> dict[str, torch.Tensor]:
    names = tuple(name for name, _ in Decoder(read_spec(directory)).named_parameters())
    capture = CaptureRequest(source=str(directory), batch=2, seq=seq, train=True)
    write_weights(WeightsRequest(capture=capture, names=(*names, "tokens"), seed=0, path=str(out)))
    return load_file(out)


@pytest.mark.parametrize("name", TRAINED)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    oracle = saved(TRAINED[name], tmp_path)
    network = Decoder(read_spec(tmp_path))
    network.load_state_dict(weights(tmp_path, tmp_path / "initial.safetensors"), strict=False)
    token_ids = torch.randint(96, (2, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network(token_ids), oracle(token_ids).logits, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (CONFIGS["gpt2"], "its family is gpt2"),
        (CONFIGS["mixtral"], "a mixture of experts"),
        (MistralConfig(**_SMALL, sliding_window=8), "sees 8 tokens only"),
        (
            LlamaConfig(**_SMALL, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
            "rotations are scaled",
        ),
    ],
)
def test_a_model_that_would_be_another_one_is_refused(config: PreTrainedConfig, said: str, tmp_path: Path) -> None:
    saved(config, tmp_path)
    with pytest.raises(HeadwayError, match=said) as refused:
        weights(tmp_path, tmp_path / "initial.safetensors")
    assert refused.value.field == "model"


def test_weights_of_another_model_are_refused_by_tensor(tmp_path: Path) -> None:
    saved(TRAINED["llama"], tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    save_file(held | {"model.norm.weight": torch.ones(7)}, tmp_path / "model.safetensors")
    with pytest.raises(HeadwayError, match=r"model.norm.weight of \[7\].*\[32\]"):
        weights(tmp_path, tmp_path / "initial.safetensors")
    del held["model.norm.weight"]
    save_file(held, tmp_path / "model.safetensors")
    with pytest.raises(HeadwayError, match=r"no tensor model.norm.weight"):
        weights(tmp_path, tmp_path / "initial.safetensors")
