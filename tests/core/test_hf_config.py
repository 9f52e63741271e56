import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.hf_config import spec_from_config
from headway.core.model import ModelFamily, RopeSpec

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OPT_350M = {
    "architectures": ["OPTForCausalLM"],
    "vocab_size": 50272,
    "hidden_size": 1024,
    "word_embed_proj_dim": 512,
    "ffn_dim": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "max_position_embeddings": 2048,
    "do_layer_norm_before": False,
    "activation_function": "relu",
    "torch_dtype": "float16",
    "eos_token_id": 2,
}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 50257,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "eos_token_id": 50256,
}


def test_tinyllama_reads_as_grouped_query_llama():
    spec = spec_from_config(LLAMA)
    assert (spec.family, spec.num_layers, spec.num_heads, spec.num_kv_heads) == (ModelFamily.LLAMA, 22, 32, 4)
    assert (spec.head_dim, spec.dtype, spec.eos_token_ids, spec.bos_token_id) == (64, "bfloat16", (2,), 1)
    assert spec.rope == RopeSpec(theta=10_000.0, rotary_dim=64, original_max_position=2048)
    assert not spec.tied_embeddings
    assert not spec.attention_bias


def test_missing_kv_heads_mean_one_per_query_head():
    assert spec_from_config({**LLAMA, "num_key_value_heads": None}).num_kv_heads == 32


def test_given_dtype_overrides_the_checkpoint():
    assert spec_from_config(LLAMA, dtype="float32").dtype == "float32"


@pytest.mark.parametrize("spelling", [{"dtype": "float16"}, {"torch_dtype": "torch.float16"}])
def test_both_spellings_of_dtype_are_read(spelling):
    assert spec_from_config({**LLAMA, "torch_dtype": None, **spelling}).dtype == "float16"


def test_checkpoint_without_dtype_is_float32():
    assert spec_from_config(GPT2).dtype == "float32"


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}},
    ],
)
def test_both_spellings_of_rope_scaling_are_read(rope):
    spec = spec_from_config({**LLAMA, **rope})
    expected = RopeSpec(theta=5e5, rotary_dim=64, kind="linear", factor=4.0, original_max_position=2048)
    assert spec.rope == expected
    assert spec.max_position == 8192


def test_llama3_scaling_keeps_the_stated_context():
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    spec = spec_from_config({**LLAMA, "max_position_embeddings": 131072, "rope_scaling": scaling})
    assert spec.rope is not None
    assert (spec.rope.kind, spec.rope.original_max_position, spec.max_position) == ("llama3", 8192, 131072)


def test_yarn_stretches_its_original_context_and_scales_attention():
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    spec = spec_from_config({**LLAMA, "max_position_embeddings": 32768, "rope_scaling": scaling})
    assert spec.max_position == 131072
    assert spec.rope is not None
    assert spec.rope.attention_factor == pytest.approx(1.1386294)


def test_partial_rotary_factor_shortens_the_rotated_part():
    spec = spec_from_config({**LLAMA, "partial_rotary_factor": 0.5})
    assert spec.rope is not None
    assert spec.rope.rotary_dim == 32


def test_qwen2_has_attention_bias_on_inputs_only():
    spec = spec_from_config({**LLAMA, "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True})
    assert (spec.attention_bias, spec.attention_output_bias, spec.tied_embeddings) == (True, False, True)
    assert spec.sliding_window is None


def test_qwen2_window_starts_at_max_window_layers():
    window = {"use_sliding_window": True, "sliding_window": 1024, "max_window_layers": 20}
    spec = spec_from_config({**LLAMA, "architectures": ["Qwen2ForCausalLM"], **window})
    assert [spec.window(layer) for layer in (0, 19, 20, 21)] == [None, None, 1024, 1024]


def test_qwen3_normalises_queries_and_keys():
    spec = spec_from_config({**LLAMA, "architectures": ["Qwen3ForCausalLM"], "head_dim": 128})
    assert spec.qk_norm
    assert spec.head_dim == 128


@pytest.mark.parametrize(("window", "expected"), [({}, 4096), ({"sliding_window": None}, None)])
def test_mistral_slides_unless_told_not_to(window, expected):
    spec = spec_from_config({**LLAMA, "architectures": ["MistralForCausalLM"], **window})
    assert spec.window(3) == expected


def test_smollm3_leaves_every_fourth_layer_without_positions():
    spec = spec_from_config({**LLAMA, "architectures": ["SmolLM3ForCausalLM"], "num_hidden_layers": 8})
    assert [spec.rotates(layer) for layer in range(8)] == [True, True, True, False] * 2


def test_opt_350m_normalises_after_and_projects_its_embedding():
    spec = spec_from_config(OPT_350M)
    assert (spec.pre_norm, spec.final_norm, spec.embedding_dim) == (False, False, 512)
    assert (spec.tied_embeddings, spec.activation, spec.rope) == (True, "relu", None)


def test_gpt2_inner_size_defaults_to_four_times_the_width():
    spec = spec_from_config(GPT2)
    assert (spec.intermediate_size, spec.activation, spec.head_dim) == (3072, "gelu_tanh", 64)


def test_model_type_stands_in_for_missing_architectures():
    config = {key: value for key, value in LLAMA.items() if key != "architectures"}
    assert spec_from_config({**config, "model_type": "llama"}).family is ModelFamily.LLAMA


@pytest.mark.parametrize(
    ("changes", "field", "supported"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "architectures", "LlamaForCausalLM"),
        ({"hidden_act": "gelu_pytorch_tanh"}, "hidden_act", "silu"),
        ({"hidden_act": "mish"}, "hidden_act", "silu"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope_type", "yarn"),
        ({"rope_scaling": {"type": "linear"}}, "factor", ""),
        ({"torch_dtype": "int8"}, "dtype", "bfloat16"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config", ""),
        ({"num_key_value_heads": 5}, "num_key_value_heads", ""),
        ({"vocab_size": None}, "vocab_size", ""),
        ({"num_hidden_layers": "many"}, "num_hidden_layers", ""),
        ({"eos_token_id": "</s>"}, "eos_token_id", ""),
    ],
)
def test_what_cannot_be_run_is_refused_by_field(changes, field, supported):
    with pytest.raises(InvalidArgumentError) as raised:
        spec_from_config({**LLAMA, **changes})
    assert raised.value.field == field
    assert supported in str(raised.value)


def test_unusual_gpt2_attention_is_refused():
    with pytest.raises(InvalidArgumentError, match="scale_attn_by_inverse_layer_idx"):
        spec_from_config({**GPT2, "scale_attn_by_inverse_layer_idx": True})


def test_refusal_lists_every_architecture():
    with pytest.raises(InvalidArgumentError) as raised:
        spec_from_config({"architectures": ["MambaForCausalLM"]})
    listed = (
        "LlamaForCausalLM",
        "Qwen3MoeForCausalLM",
        "OPTForCausalLM",
        "GPT2LMHeadModel",
        "BertModel",
        "DistilBertModel",
    )
    assert all(name in raised.value.hint for name in listed)


def test_quantization_is_the_one_asked_for():
    assert spec_from_config(LLAMA).quantization is None
    assert spec_from_config(LLAMA, quantization="int8").quantization == "int8"


def test_an_unknown_quantization_is_refused():
    with pytest.raises(InvalidArgumentError, match="int3") as caught:
        spec_from_config(LLAMA, quantization="int3")
    assert caught.value.field == "quantization"
