from typing import Any

import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.hf_config import spec_from_config

MIXTRAL_8X7B = {
    "architectures": ["MixtralForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "sliding_window": None,
}
QWEN_MOE_A2_7B = {
    "architectures": ["Qwen2MoeForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "norm_topk_prob": False,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_position_embeddings": 8192,
    "use_sliding_window": False,
}
QWEN3_30B_A3B = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "head_dim": 128,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "max_position_embeddings": 40960,
}


@pytest.mark.parametrize(
    ("config", "num_billion", "num_active_billion"),
    [(MIXTRAL_8X7B, 46.7, 12.9), (QWEN_MOE_A2_7B, 14.3, 2.7), (QWEN3_30B_A3B, 30.5, 3.3)],
    ids=["Mixtral-8x7B", "Qwen1.5-MoE-A2.7B", "Qwen3-30B-A3B"],
)
def test_sizes_are_the_published_ones(config: dict[str, Any], num_billion: float, num_active_billion: float) -> None:
    spec = spec_from_config(config)
    assert spec.num_parameters / 1e9 == pytest.approx(num_billion, abs=0.06)
    embedding_flops = 2 * spec.vocab_size * spec.hidden_size  # a look-up, which the published figures count
    assert (spec.flops_per_token + embedding_flops) / 2e9 == pytest.approx(num_active_billion, abs=0.07)


def test_a_mixtral_has_experts_of_the_intermediate_size_in_every_layer() -> None:
    spec = spec_from_config(MIXTRAL_8X7B)
    assert spec.experts is not None
    assert (spec.experts.num_experts, spec.experts.intermediate_size, spec.experts.is_normalized) == (8, 14336, True)
    assert all(spec.is_sparse(layer) for layer in range(spec.num_layers))


def test_layers_are_dense_between_the_sparse_ones_and_where_the_list_says() -> None:
    changes = {"num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    spec = spec_from_config({**QWEN3_30B_A3B, **changes})
    assert [spec.is_sparse(layer) for layer in range(6)] == [False, True, False, False, False, True]


def test_a_dense_model_has_no_experts() -> None:
    spec = spec_from_config({**QWEN3_30B_A3B, "architectures": ["Qwen3ForCausalLM"]})
    assert spec.experts is None
    assert not spec.is_sparse(0)


@pytest.mark.parametrize(
    ("field", "value"), [("num_experts", 0), ("num_experts_per_tok", 129), ("moe_intermediate_size", None)]
)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        spec_from_config({**QWEN3_30B_A3B, field: value})
    assert caught.value.field == field
