import pytest

from tests.checkpoints import make_checkpoint
from tests.models.oracle import check_against_transformers

VARIANTS = {
    "norms before": {},
    "norms after, narrow embedding": {"do_layer_norm_before": False, "word_embed_proj_dim": 32},
    "no biases, gelu": {"enable_bias": False, "activation_function": "gelu"},
    "untied": {"tie_word_embeddings": False},
}


@pytest.mark.parametrize("overrides", VARIANTS.values(), ids=VARIANTS.keys())
def test_greedy_tokens_and_logprobs_equal_transformers(tmp_path, overrides):
    check_against_transformers(make_checkpoint(tmp_path, "opt", **overrides))


def test_chunked_prompts_give_the_same(tmp_path):
    check_against_transformers(make_checkpoint(tmp_path, "opt"), chunk_size=5)
