"""Shapes of families that Headway's own engine lacks, as transformers itself has them."""

from typing import Any

import pytest
import transformers
from transformers import AutoModelForCausalLM, PreTrainedConfig

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.hf_config import spec_from_config
from headway.core.model import ModelFamily, ModelSpec

FAMILIES = {
    "Gemma2": "ForCausalLM",
    "Phi3": "ForCausalLM",
    "Cohere2": "ForCausalLM",
    "Falcon": "ForCausalLM",
    "Bloom": "ForCausalLM",
    "Granite": "ForCausalLM",
    "GptOss": "ForCausalLM",
    "DeepseekV3": "ForCausalLM",
    "Glm4Moe": "ForCausalLM",
    "Gemma3": "ForConditionalGeneration",
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 112,
    "dtype": "float16",
}


def read(config: dict[str, Any], engine: EngineKind = EngineKind.VLLM) -> ModelSpec:
    return spec_from_config(config, dtype="bfloat16", engine=engine)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_transformers_is_read_as_that_reads_it(name: str) -> None:
    config = getattr(transformers, f"{name}Config")()
    spec = read({**config.to_dict(), "architectures": [f"{name}{FAMILIES[name]}"]})
    text = config.get_text_config()
    assert spec.family is ModelFamily.OTHER
    assert (spec.vocab_size, spec.hidden_size) == (text.vocab_size, text.hidden_size)
    assert (spec.num_layers, spec.num_heads) == (text.num_hidden_layers, text.num_attention_heads)
    with pytest.raises(InvalidArgumentError) as refused:
        read({**config.to_dict(), "architectures": [f"{name}{FAMILIES[name]}"]}, EngineKind.HEADWAY)
    assert "--engine vllm" in refused.value.hint


TINY = {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
GATED = {**TINY, "num_key_value_heads": 2, "intermediate_size": 112, "tie_word_embeddings": False}
LATENT = {"kv_lora_rank": 24, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
EXPERTS = {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 40}


@pytest.mark.parametrize(
    ("name", "fields", "kept_of_a_token"),
    [
        pytest.param("Gemma2", {**GATED, "head_dim": 32}, 2 * 2 * 32, id="heads-of-their-own-width"),
        pytest.param("Phi3", {**GATED, "pad_token_id": 0}, 2 * 2 * 16, id="few-kv-heads"),
        pytest.param("Falcon", {**TINY, "multi_query": True, "new_decoder_architecture": False}, 2 * 16, id="one-head"),
        pytest.param(
            "DeepseekV3",
            {**GATED, **LATENT, **EXPERTS, "first_k_dense_replace": 1, "num_key_value_heads": 4, "n_group": 1},
            24 + 8,
            id="latent",
        ),
    ],
)
def test_weights_and_cache_are_as_large_as_those_of_the_network(
    name: str, fields: dict[str, Any], kept_of_a_token: int
) -> None:
    config: PreTrainedConfig = getattr(transformers, f"{name}Config")(**fields)
    network = AutoModelForCausalLM.from_config(config)
    spec = read({**config.to_dict(), "architectures": [f"{name}ForCausalLM"]})
    num_weights = sum(weight.numel() for weight in network.parameters() if weight.ndim > 1)
    assert spec.num_parameters == pytest.approx(num_weights, rel=0.3)  # where no files say it
    assert spec.kv_bytes_per_token == 2 * 2 * kept_of_a_token


def test_quantised_weights_are_for_an_engine_that_has_them() -> None:
    config = LLAMA | {"quantization_config": {"quant_method": "awq", "bits": 4}}
    assert read(config).family is ModelFamily.OTHER
    assert read(LLAMA).family is ModelFamily.LLAMA
    with pytest.raises(InvalidArgumentError, match="quantization_config") as refused:
        read(config, EngineKind.HEADWAY)
    assert "--engine vllm" in refused.value.hint


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"architectures": ["T5EncoderModel"]}, "architectures"),
        ({"architectures": []}, "architectures"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": -2}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
    ],
)
def test_what_is_wrong_with_one_is_named(change: dict[str, Any], field: str) -> None:
    config = LLAMA | {"architectures": ["GemmaForCausalLM"]} | change
    with pytest.raises(InvalidArgumentError) as refused:
        read(config)
    assert refused.value.field == field
