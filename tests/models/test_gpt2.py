import pytest
from safetensors.torch import load_file, save_file

from tests.checkpoints import make_checkpoint
from tests.models.oracle import check_against_transformers

VARIANTS = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "narrow MLP, exact gelu": {"n_inner": 96, "activation_function": "gelu"},
}


@pytest.mark.parametrize("overrides", VARIANTS.values(), ids=VARIANTS.keys())
def test_greedy_tokens_and_logprobs_equal_transformers(tmp_path, overrides):
    check_against_transformers(make_checkpoint(tmp_path, "gpt2", **overrides))


def test_chunked_prompts_give_the_same(tmp_path):
    check_against_transformers(make_checkpoint(tmp_path, "gpt2"), chunk_size=5)


def test_names_without_prefix_load_as_in_the_original_checkpoint(tmp_path):
    directory = make_checkpoint(tmp_path, "gpt2")
    tensors = load_file(directory / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    assert bare.keys() != tensors.keys()
    save_file(bare, directory / "model.safetensors", metadata={"format": "pt"})
    check_against_transformers(directory)
