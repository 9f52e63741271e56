"""A checkpoint directory in Hugging Face format: config, weights, tokenizer and chat template."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor

from deploy.demo.tokenizer import CHAT_TEMPLATE, END_OF_TEXT, TURN_END
from headway.checkpoint.tensors import write_tensors
from headway.checkpoint.weight_files import WEIGHTS_FILE
from headway.checkpoint.whole_directory import whole_directory
from headway.core.model import ModelSpec

RECIPE_FILE = "recipe.json"

Recipe = dict[str, Any]
"""What a made checkpoint depends on; the same recipe makes the same directory."""


def is_current(directory: Path, recipe: Recipe) -> bool:
    """Whether `directory` holds a complete checkpoint made by this recipe."""
    path = directory / RECIPE_FILE
    return path.exists() and json.loads(path.read_text()) == recipe


def write_checkpoint(
    directory: Path, *, spec: ModelSpec, weights: dict[str, Tensor], tokenizer: Tokenizer, recipe: Recipe
) -> None:
    """Replace `directory` by this checkpoint, in one rename: an interrupted run leaves no half of one."""
    with whole_directory(directory) as staging:
        write_tensors(staging / WEIGHTS_FILE, weights)
        tokenizer.save(str(staging / "tokenizer.json"))
        write_json(staging / "config.json", config_document(spec))
        write_json(staging / "generation_config.json", {"eos_token_id": list(spec.eos_token_ids)})
        write_json(staging / "tokenizer_config.json", tokenizer_document(spec))
        write_json(staging / RECIPE_FILE, recipe)


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")


def config_document(spec: ModelSpec) -> dict[str, Any]:
    """Makes `config.json` of a Llama."""
    assert spec.rope is not None
    return {
        "architectures": [spec.architecture],
        "model_type": "llama",
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": spec.activation,
        "max_position_embeddings": spec.max_position,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": spec.rope.theta,
        "attention_bias": spec.attention_bias,
        "mlp_bias": spec.mlp_bias,
        "tie_word_embeddings": spec.tied_embeddings,
        "torch_dtype": spec.dtype,
        "bos_token_id": spec.bos_token_id,
        "eos_token_id": list(spec.eos_token_ids),
    }


def tokenizer_document(spec: ModelSpec) -> dict[str, Any]:
    """Makes `tokenizer_config.json`: special tokens, length limit and chat template."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "model_max_length": spec.max_position,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
