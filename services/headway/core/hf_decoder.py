"""Reads the shape of a decoder of any family, for an engine that has a network for it: pure, given the parsed document.

Read is what sizes memory and estimates times, under the names that families of transformers give it. How the layers
compute, and what the weights are quantised to, is the engine's.
"""

from headway.core.errors import InvalidArgumentError
from headway.core.hf_fields import Config, positive
from headway.core.model import ExpertsSpec, ModelFamily, ModelSpec, RopeSpec

_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_NAMES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "num_query_groups"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length", "n_ctx"),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_experts_per_tok": ("experts_per_token", "moe_topk"),
}
"""What other families call these fields, as the `attribute_map` of their configurations says."""
_MAX_POSITION = 2048


def read_decoder(config: Config, *, dtype: str) -> ModelSpec:
    """The shape. Of a model that sees images, too, it is that of the decoder.

    Raises:
        InvalidArgumentError: names the field that is missing or malformed; or the model does not generate.
    """
    architecture = next(iter(config.get("architectures") or ()), "")
    if not str(architecture).endswith(_HEADS):
        raise InvalidArgumentError(
            f"architectures {config.get('architectures')!r} names no model that generates.",
            hint=f"Such names end with {', '.join(_HEADS)}.",
            field="architectures",
        )
    text = _renamed({**config, **(config.get("text_config") or {})})
    hidden_size, num_heads = positive(text, "hidden_size"), positive(text, "num_attention_heads")
    is_latent = bool(text.get("kv_lora_rank"))
    rope_dim = positive(text, "qk_rope_head_dim") if is_latent else 0
    if is_latent:
        head_dim = positive(text, "qk_nope_head_dim") + rope_dim
    else:
        head_dim = positive(text, "head_dim", default=hidden_size // num_heads)
    return ModelSpec(
        family=ModelFamily.OTHER,
        architecture=str(architecture),
        vocab_size=positive(text, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=positive(text, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads if is_latent else _num_kv_heads(text, num_heads),
        head_dim=head_dim,
        latent_dim=positive(text, "kv_lora_rank") + rope_dim if is_latent else 0,
        intermediate_size=positive(text, "intermediate_size", default=4 * hidden_size),
        experts=_experts(text),
        max_position=positive(text, "max_position_embeddings", default=_MAX_POSITION),
        dtype=dtype,
        activation="",
        norm_eps=0.0,
        rope=RopeSpec(theta=float(text.get("rope_theta") or 10_000.0), rotary_dim=rope_dim or head_dim),
        tied_embeddings=bool(text.get("tie_word_embeddings", False)),
        eos_token_ids=_eos(text.get("eos_token_id")),
        bos_token_id=text.get("bos_token_id"),
    )


def _renamed(config: Config) -> Config:
    """The fields under the names that most families have."""
    found = dict(config)
    for name, others in _NAMES.items():
        if found.get(name) is None:
            found[name] = next((found[other] for other in others if found.get(other) is not None), None)
    return found


def _num_kv_heads(text: Config, num_heads: int) -> int:
    """Falcon says that all heads share one, and how many there are where they do not."""
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    return positive(text, "num_key_value_heads", default=num_heads)


def _experts(text: Config) -> ExpertsSpec | None:
    """None for a dense model. Layers before `first_k_dense_replace` are dense (DeepSeek, GLM), and those between the
    steps of `interleave_moe_layer_step` (Llama 4)."""
    if not text.get("num_experts"):
        return None
    num_layers, width = positive(text, "num_hidden_layers"), text.get("moe_intermediate_size")
    first, step = int(text.get("first_k_dense_replace") or 0), int(text.get("interleave_moe_layer_step") or 1)
    intermediate_size = positive(text, "intermediate_size" if width is None else "moe_intermediate_size")
    return ExpertsSpec(
        num_experts=positive(text, "num_experts"),
        num_experts_per_tok=positive(text, "num_experts_per_tok"),
        intermediate_size=intermediate_size,
        shared_intermediate_size=int(text.get("n_shared_experts") or 0) * intermediate_size,
        sparse_layers=tuple(layer >= first and (layer + 1) % step == 0 for layer in range(num_layers)),
    )


def _eos(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(each for each in values if isinstance(each, int))
