"""Modules made from a checkpoint's configuration have the parameters that transformers gives it."""

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    OPTConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3MoeConfig,
)

from headway.core.capture import CaptureRequest
from headway.core.errors import InvalidArgumentError
from headway.core.graph import TensorRole
from headway.profiler.capture.capture import capture

_GATED = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64,
}  # fmt: skip
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**_GATED),
    "qwen2": Qwen2Config(**_GATED, tie_word_embeddings=True),
    "mixtral": MixtralConfig(**_GATED, num_local_experts=4),
    "qwen3-moe": Qwen3MoeConfig(**_GATED, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
    "gpt2": GPT2Config(vocab_size=96, n_embd=32, n_head=4, n_layer=2, n_positions=64),
    "opt": OPTConfig(
        vocab_size=96, hidden_size=32, num_attention_heads=4, num_hidden_layers=2, ffn_dim=64,
        max_position_embeddings=64, word_embed_proj_dim=16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_checkpoint_is_captured_from_its_config(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    with torch.device("meta"):
        expected = sum(parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters())
    config.architectures = None
    config.save_pretrained(tmp_path)
    graph = capture(CaptureRequest(source=str(tmp_path), batch=2, seq=16), report=lambda _: None).graph
    assert graph.parameters == expected
    assert graph.unknown_operators == {}
    (output,) = (tensor for tensor in graph.tensors if tensor.role is TensorRole.OUTPUT)
    assert output.num_elements == 2 * 16 * 96


def test_the_longest_sequence_is_the_default_and_the_limit(tmp_path: Path) -> None:
    CONFIGS["llama"].save_pretrained(tmp_path)
    graph = capture(CaptureRequest(source=str(tmp_path)), report=lambda _: None).graph
    assert [tensor.shape for tensor in graph.tensors if tensor.role is TensorRole.INPUT] == [(1, 64)]
    with pytest.raises(InvalidArgumentError, match="up to 64 tokens, not 65"):
        capture(CaptureRequest(source=str(tmp_path), seq=65), report=lambda _: None)


def test_an_encoder_is_refused(tmp_path: Path) -> None:
    config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
    config.save_pretrained(tmp_path)
    with pytest.raises(InvalidArgumentError, match="encoder"):
        capture(CaptureRequest(source=str(tmp_path)), report=lambda _: None)
