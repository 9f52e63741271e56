"""Reads a Hugging Face `config.json` into a `ModelSpec`: pure, given the parsed document.

Both spellings are understood: `rope_theta`, `rope_scaling` and `torch_dtype` of older checkpoints, and the
`rope_parameters` and `dtype` that transformers 5 writes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.hf_decoder import read_decoder
from headway.core.hf_encoder import read_bert, read_distilbert, read_roberta
from headway.core.hf_experts import experts_from_config
from headway.core.hf_fields import Config, activation, positive, require, unsupported
from headway.core.hf_rope import rope_from_config
from headway.core.model import DTYPE_BYTES, QUANTIZATION_BYTES, ModelFamily, ModelSpec

_Reader: TypeAlias = Callable[[Config, str, str], ModelSpec]

_ARCHITECTURE_BY_MODEL_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "opt": "OPTForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "camembert": "CamembertModel",
    "distilbert": "DistilBertModel",
}

_QWEN2 = ("Qwen2ForCausalLM", "Qwen2MoeForCausalLM")


def spec_from_config(
    config: Config,
    *,
    dtype: str | None = None,
    quantization: str | None = None,
    engine: EngineKind = EngineKind.HEADWAY,
) -> ModelSpec:
    """The spec that `config` describes.

    Args:
        config: the parsed `config.json`.
        dtype: of weights and KV cache, one of `DTYPE_BYTES`; None takes the checkpoint's own.
        quantization: of the matrices, one of `QUANTIZATION_BYTES`, or None.
        engine: that is to compute it: others than Headway's have more families, and quantised weights.

    Raises:
        InvalidArgumentError: names the field whose value is missing, malformed or not supported.
    """
    try:
        return _spec(config, dtype=dtype, quantization=quantization, engine=engine)
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError) as error:
        raise InvalidArgumentError(
            f"A field of config.json has a value of a kind that no model has: {error}.",
            hint="Download the file again.",
            field="config.json",
        ) from error


def _spec(config: Config, *, dtype: str | None, quantization: str | None, engine: EngineKind) -> ModelSpec:
    dtype = dtype or checkpoint_dtype(config)
    try:
        spec = _own_spec(config, dtype=dtype)
    except InvalidArgumentError:
        if engine is EngineKind.HEADWAY:
            raise
        spec = read_decoder(config, dtype=dtype)
    if spec.dtype not in DTYPE_BYTES:
        raise unsupported("dtype", spec.dtype, DTYPE_BYTES)
    if quantization is not None and quantization not in QUANTIZATION_BYTES:
        raise unsupported("quantization", quantization, QUANTIZATION_BYTES)
    if spec.num_heads % spec.num_kv_heads:
        raise InvalidArgumentError(
            f"num_key_value_heads {spec.num_kv_heads} does not divide num_attention_heads {spec.num_heads}.",
            field="num_key_value_heads",
        )
    return replace(spec, quantization=quantization)


def _own_spec(config: Config, *, dtype: str) -> ModelSpec:
    """Of a family that Headway's own engine has."""
    architecture = _architecture(config)
    if config.get("quantization_config"):
        raise InvalidArgumentError(
            "quantization_config is set, and Headway's own engine has no quantised checkpoints.",
            hint="Use the unquantised checkpoint, or serve it with --engine vllm.",
            field="quantization_config",
        )
    return _READERS[architecture](config, architecture, dtype)


def checkpoint_dtype(config: Config) -> str:
    """The dtype that the checkpoint says it is stored in; 'float32' if it says nothing. Models that see images, too,
    say it of their decoder."""
    text = config.get("text_config") or {}
    name = next((each[key] for each in (config, text) for key in ("dtype", "torch_dtype") if each.get(key)), "float32")
    return str(name).removeprefix("torch.")


def token_ids(value: object) -> tuple[int, ...]:
    """Normalises an `eos_token_id` entry: None, one id, or a list of ids."""
    if value is None:
        return ()
    if isinstance(value, int):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return tuple(value)
    raise InvalidArgumentError(
        f"eos_token_id must be an integer or a list of integers, not {value!r}.", field="eos_token_id"
    )


def _architecture(config: Config) -> str:
    named = config.get("architectures") or [_ARCHITECTURE_BY_MODEL_TYPE.get(str(config.get("model_type")))]
    for name in named:
        if name in _READERS:
            return str(name)
    field = "architectures" if config.get("architectures") else "model_type"
    raise InvalidArgumentError(
        f"{field} {config.get(field)!r} is not supported.",
        hint=f"Supported: {', '.join(_READERS)}. vLLM has more: --engine vllm.",
        field=field,
    )


def _llama(config: Config, architecture: str, dtype: str) -> ModelSpec:
    hidden_size, num_heads = positive(config, "hidden_size"), positive(config, "num_attention_heads")
    num_layers = positive(config, "num_hidden_layers")
    head_dim = positive(config, "head_dim", default=hidden_size // num_heads)
    max_position = positive(config, "max_position_embeddings", default=2048)
    rope, max_position = rope_from_config(config, head_dim=head_dim, max_position=max_position)
    if activation(config, "hidden_act", "silu") != "silu":
        raise unsupported("hidden_act", config["hidden_act"], ("silu", "swish"))
    is_qwen2, is_smollm3 = architecture in _QWEN2, architecture == "SmolLM3ForCausalLM"
    sliding_window, sliding_layers = _sliding(config, architecture, num_layers)
    return ModelSpec(
        family=ModelFamily.LLAMA,
        architecture=architecture,
        vocab_size=positive(config, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=positive(config, "num_key_value_heads", default=num_heads),
        head_dim=head_dim,
        intermediate_size=positive(config, "intermediate_size"),
        experts=experts_from_config(config, architecture, num_layers=num_layers),
        max_position=max_position,
        dtype=dtype,
        activation="silu",
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope=rope,
        rope_layers=_rope_layers(config, num_layers) if is_smollm3 else (),
        tied_embeddings=bool(config.get("tie_word_embeddings", is_smollm3)),
        attention_bias=bool(config.get("qkv_bias" if is_qwen2 else "attention_bias", is_qwen2)),
        attention_output_bias=not is_qwen2 and bool(config.get("attention_bias", False)),
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=architecture in ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
        sliding_window=sliding_window,
        sliding_layers=sliding_layers,
        eos_token_ids=token_ids(config.get("eos_token_id")),
        bos_token_id=config.get("bos_token_id"),
    )


def _opt(config: Config, architecture: str, dtype: str) -> ModelSpec:
    hidden_size, num_heads = positive(config, "hidden_size"), positive(config, "num_attention_heads")
    require(config, "layer_norm_elementwise_affine", value=True)
    pre_norm = bool(config.get("do_layer_norm_before", True))
    has_bias = bool(config.get("enable_bias", True))
    return ModelSpec(
        family=ModelFamily.OPT,
        architecture=architecture,
        vocab_size=positive(config, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=positive(config, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        intermediate_size=positive(config, "ffn_dim"),
        max_position=positive(config, "max_position_embeddings"),
        dtype=dtype,
        activation=activation(config, "activation_function", "relu"),
        norm_eps=1e-5,
        tied_embeddings=bool(config.get("tie_word_embeddings", True)),
        attention_bias=has_bias,
        attention_output_bias=has_bias,
        mlp_bias=has_bias,
        pre_norm=pre_norm,
        final_norm=pre_norm and not config.get("_remove_final_layer_norm", False),
        embedding_dim=positive(config, "word_embed_proj_dim", default=hidden_size),
        eos_token_ids=token_ids(config.get("eos_token_id", 2)),
        bos_token_id=config.get("bos_token_id", 2),
    )


def _gpt2(config: Config, architecture: str, dtype: str) -> ModelSpec:
    hidden_size, num_heads = positive(config, "n_embd"), positive(config, "n_head")
    require(config, "scale_attn_weights", value=True)
    require(config, "scale_attn_by_inverse_layer_idx", value=False)
    require(config, "add_cross_attention", value=False)
    return ModelSpec(
        family=ModelFamily.GPT2,
        architecture=architecture,
        vocab_size=positive(config, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=positive(config, "n_layer"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        intermediate_size=positive(config, "n_inner", default=4 * hidden_size),
        max_position=positive(config, "n_positions"),
        dtype=dtype,
        activation=activation(config, "activation_function", "gelu_new"),
        norm_eps=float(config.get("layer_norm_epsilon", 1e-5)),
        tied_embeddings=bool(config.get("tie_word_embeddings", True)),
        attention_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        eos_token_ids=token_ids(config.get("eos_token_id", 50256)),
        bos_token_id=config.get("bos_token_id", 50256),
    )


def _with_heads(name: str, read: _Reader) -> dict[str, _Reader]:
    """The architectures of one family of encoders; a language model's head is left unused."""
    return dict.fromkeys((f"{name}Model", f"{name}ForSequenceClassification", f"{name}ForMaskedLM"), read)


_READERS: dict[str, _Reader] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _llama,
    "MixtralForCausalLM": _llama,
    "Qwen2ForCausalLM": _llama,
    "Qwen2MoeForCausalLM": _llama,
    "Qwen3ForCausalLM": _llama,
    "Qwen3MoeForCausalLM": _llama,
    "SmolLM3ForCausalLM": _llama,
    "OPTForCausalLM": _opt,
    "GPT2LMHeadModel": _gpt2,
    **_with_heads("Bert", read_bert),
    **_with_heads("Roberta", read_roberta),
    **_with_heads("XLMRoberta", read_roberta),
    **_with_heads("Camembert", read_roberta),
    **_with_heads("DistilBert", read_distilbert),
}


def _sliding(config: Config, architecture: str, num_layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """The attention window and which layers have it; an empty tuple stands for all of them."""
    if architecture in ("MistralForCausalLM", "MixtralForCausalLM"):
        window = config.get("sliding_window", 4096 if architecture == "MistralForCausalLM" else None)
        return (None if window is None else int(window)), ()
    window = config.get("sliding_window", 4096)
    if not config.get("use_sliding_window", False) or window is None:
        return None, ()
    if layer_types := config.get("layer_types"):
        layers = tuple(kind == "sliding_attention" for kind in layer_types)
    elif architecture == "Qwen3MoeForCausalLM":
        layers = ()
    else:
        first = int(config.get("max_window_layers", 28))
        if architecture == "Qwen2MoeForCausalLM":
            layers = tuple(layer < first and layer % 2 == 0 for layer in range(num_layers))
        else:
            layers = tuple(layer >= first for layer in range(num_layers))
    return int(window), layers


def _rope_layers(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Returns whether each layer rotates; SmolLM3 leaves every fourth one without positions."""
    if flags := config.get("no_rope_layers"):
        return tuple(bool(flag) for flag in flags[:num_layers])
    interval = int(config.get("no_rope_layer_interval", 4))
    return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
