"""Reads the mixture-of-experts part of a Hugging Face `config.json`."""

from headway.core.errors import InvalidArgumentError
from headway.core.hf_fields import Config, positive
from headway.core.model import ExpertsSpec

_SPARSE = ("MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM")


def experts_from_config(config: Config, architecture: str, *, num_layers: int) -> ExpertsSpec | None:
    """The sparse layers; None for a dense model.

    Raises:
        InvalidArgumentError: names the field whose value is missing or malformed.
    """
    if architecture not in _SPARSE:
        return None
    num_experts = positive(config, "num_experts", default=config.get("num_local_experts"))
    num_experts_per_tok = positive(config, "num_experts_per_tok")
    if num_experts_per_tok > num_experts:
        raise InvalidArgumentError(
            f"num_experts_per_tok {num_experts_per_tok} exceeds the number of experts, {num_experts}.",
            field="num_experts_per_tok",
        )
    if architecture == "MixtralForCausalLM":
        return ExpertsSpec(
            num_experts=num_experts,
            num_experts_per_tok=num_experts_per_tok,
            intermediate_size=positive(config, "intermediate_size"),
        )
    dense, step = config.get("mlp_only_layers") or (), positive(config, "decoder_sparse_step", default=1)
    has_shared = architecture == "Qwen2MoeForCausalLM"
    return ExpertsSpec(
        num_experts=num_experts,
        num_experts_per_tok=num_experts_per_tok,
        intermediate_size=positive(config, "moe_intermediate_size"),
        shared_intermediate_size=positive(config, "shared_expert_intermediate_size") if has_shared else 0,
        is_normalized=bool(config.get("norm_topk_prob", False)),
        sparse_layers=tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(num_layers)),
    )
