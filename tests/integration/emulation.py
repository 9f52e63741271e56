"""Models for emulated stacks: a configuration without weights, and a file of stage profiles."""

import json
from pathlib import Path

from tests.checkpoints import make_tokenizer, write_tokenizer

STAGE_S = 0.05


def write_model(directory: Path) -> Path:
    """A Llama of about 3 billion parameters, without weights: a V100 takes about 10 ms a token."""
    tokenizer = make_tokenizer()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 2560,
        "intermediate_size": 8704,
        "num_hidden_layers": 32,
        "num_attention_heads": 20,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
    }
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    write_tokenizer(directory, tokenizer)
    return directory


def write_profiles(path: Path) -> Path:
    """`bert` in one stage, in AlpaServe's form."""
    config = {
        "pp": 1,
        "op": 1,
        "weight_mem_bytes": [10**9],
        "batch": {"1": {"stage_latency_s": [STAGE_S], "act_mem_bytes": [10**8]}},
    }
    path.write_text(json.dumps({"models": {"bert": {"configs": {"pp1_op1": config}}}}))
    return path
