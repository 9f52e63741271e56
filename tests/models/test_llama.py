import pytest

from tests.checkpoints import make_checkpoint
from tests.models.oracle import check_against_transformers

VARIANTS = {
    "llama, grouped queries": ("llama", {}),
    "llama, all heads, tied": ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama, one KV head": ("llama", {"num_key_value_heads": 1}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, wide heads": ("llama", {"head_dim": 32}),
    "mistral": ("mistral", {}),
    "mistral, window": ("mistral", {"sliding_window": 24}),
    "qwen2": ("qwen2", {}),
    "qwen2, tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2, window from layer 1": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {}),
    "smollm3": ("smollm3", {}),
}


@pytest.mark.parametrize(("family", "overrides"), VARIANTS.values(), ids=VARIANTS.keys())
def test_greedy_tokens_and_logprobs_equal_transformers(tmp_path, family, overrides):
    check_against_transformers(make_checkpoint(tmp_path, family, **overrides))


@pytest.mark.parametrize("chunk_size", [1, 5, 16, 23])
def test_chunked_prompts_give_the_same(tmp_path, chunk_size):
    check_against_transformers(make_checkpoint(tmp_path, "qwen3"), chunk_size=chunk_size)


def test_window_holds_across_chunks(tmp_path):
    check_against_transformers(make_checkpoint(tmp_path, "mistral", sliding_window=24), chunk_size=7)
