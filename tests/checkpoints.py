"""Makes small checkpoint directories in Hugging Face format, with random weights and a real tokenizer.

Weights are drawn wide (`initializer_range` 0.15 against the usual 0.02), so that the best token leads by more than
rounding and greedy outputs can be compared token for token.
"""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OPTConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
_CHAT_TOKENS = ("<|user|>", "<|assistant|>", "<|system|>")
_VOCAB_SIZE = 512

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

TEXT = (
    "The time between two trains on one line is called the headway. It is set by the slowest section, by how long a"
    " train stands at a platform, and by the signals. When every train takes the same time over each section, the"
    " line is in steady state, and one more train an hour costs nothing but rolling stock. Was it ever so simple?"
    " Über die Brücke fährt früh um 5:45 der erste Zug; à midi, le dernier est déjà passé. 1234567890 + 42 = ...\n"
)

_SIZES = {
    "vocab_size": _VOCAB_SIZE,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
}
_GATED = {**_SIZES, "num_key_value_heads": 2, "intermediate_size": 112, "head_dim": 16}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}

_CONFIGS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaConfig, _GATED),
    "mistral": (MistralConfig, {**_GATED, "sliding_window": None}),
    "qwen2": (Qwen2Config, {key: _GATED[key] for key in _GATED if key != "head_dim"}),
    "qwen3": (Qwen3Config, _GATED),
    "mixtral": (MixtralConfig, {**_GATED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": (Qwen2MoeConfig, {**_GATED, **_EXPERTS, "shared_expert_intermediate_size": 72}),
    "qwen3_moe": (Qwen3MoeConfig, {**_GATED, **_EXPERTS, "norm_topk_prob": True}),
    "smollm3": (SmolLM3Config, {**_GATED, "num_hidden_layers": 4}),
    "opt": (
        OPTConfig,
        {
            "vocab_size": _VOCAB_SIZE,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 128,
            "max_position_embeddings": 512,
            "init_std": 0.15,
        },
    ),
    "gpt2": (
        GPT2Config,
        {
            "vocab_size": _VOCAB_SIZE,
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 512,
            "initializer_range": 0.15,
        },
    ),
}

FAMILIES = tuple(_CONFIGS)


def make_checkpoint(
    directory: Path,
    family: str,
    *,
    seed: int = 0,
    dtype: str = "float32",
    max_shard_size: str = "1GB",
    **overrides: Any,
) -> Path:
    """Writes a model of `family` to `directory` and returns it.

    Args:
        family: one of `FAMILIES`.
        seed: of the weights.
        dtype: the weights are stored in.
        max_shard_size: larger weights are split over several files.
        overrides: fields of the family's `transformers` configuration.
    """
    config_class, fields = _CONFIGS[family]
    return make_other(
        directory, config_class, seed=seed, dtype=dtype, max_shard_size=max_shard_size, **{**fields, **overrides}
    )


def make_other(
    directory: Path,
    config_class: type[PreTrainedConfig],
    *,
    seed: int = 0,
    dtype: str = "float32",
    max_shard_size: str = "1GB",
    **fields: Any,
) -> Path:
    """The same of any class of configuration that `transformers` has a network for."""
    tokenizer = make_tokenizer()
    special = {name: tokenizer.token_to_id(token) for name, token in _SPECIAL_IDS.items()}
    config = config_class(**{**special, **fields})
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    scatter(model)
    model.save_pretrained(directory, max_shard_size=max_shard_size)
    write_tokenizer(directory, tokenizer)
    return directory


_SPECIAL_IDS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}


def make_tokenizer() -> Tokenizer:
    """A byte-level BPE of 512 tokens: it encodes any text, and merges what is frequent in a short one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCAB_SIZE,
        special_tokens=[BOS, EOS, PAD, *_CHAT_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def write_tokenizer(directory: Path, tokenizer: Tokenizer) -> None:
    """`tokenizer.json`, and the chat template and special tokens that belong to it."""
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    special = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}), encoding="utf-8"
    )


def edit_json(path: Path, **changes: Any) -> None:
    """Sets top-level fields of a JSON file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(document | changes), encoding="utf-8")


def scatter(model: torch.nn.Module) -> None:
    """Makes biases and norms differ from the zeros and ones that they start as, so that ignoring one shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
