"""A small Llama's specification, for tests that need no weights."""

from typing import Any

from headway.core.model import ModelFamily, ModelSpec


def llama_spec(**changes: Any) -> ModelSpec:
    usual: dict[str, Any] = {
        "family": ModelFamily.LLAMA,
        "architecture": "LlamaForCausalLM",
        "vocab_size": 64,
        "hidden_size": 64,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "max_position": 1024,
        "dtype": "float32",
        "activation": "silu",
        "norm_eps": 1e-5,
    }
    return ModelSpec(**(usual | changes))
