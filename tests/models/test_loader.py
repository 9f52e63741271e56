from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.errors import InvalidArgumentError
from headway.models.layout import alone
from headway.models.loader import load_model
from tests.checkpoints import edit_json, make_checkpoint
from tests.models.oracle import check_against_transformers

CPU = torch.device("cpu")
NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path, "llama")


def rewrite(directory: Path, **changes: torch.Tensor | None) -> None:
    """Replaces tensors of the checkpoint; None removes one."""
    tensors = load_file(directory / "model.safetensors") | changes
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, directory / "model.safetensors")


def load(directory: Path, *, dtype: str | None = None) -> None:
    checkpoint = read_checkpoint(directory, dtype=dtype)
    load_model(checkpoint, layout=alone(checkpoint.spec), device=CPU)


def test_shards_load_as_one_file_does(tmp_path):
    directory = make_checkpoint(tmp_path, "qwen2", max_shard_size="100KB")
    assert len(list(directory.glob("*.safetensors"))) > 2
    check_against_transformers(directory)


def test_progress_grows_to_the_size_on_disk(directory):
    checkpoint = read_checkpoint(directory)
    steps: list[tuple[int, int]] = []
    load_model(
        checkpoint,
        layout=alone(checkpoint.spec),
        device=CPU,
        progress=lambda done, total: steps.append((done, total)),
    )
    done = [step[0] for step in steps]
    assert done == sorted(done)
    assert {step[1] for step in steps} == {checkpoint.weight_bytes}
    assert done[-1] == pytest.approx(checkpoint.weight_bytes, rel=0.05)


def test_missing_tensor_is_named(directory):
    rewrite(directory, **{NORM: None})
    with pytest.raises(InvalidArgumentError, match=r"layers\.1\.input_layernorm\.weight"):
        load(directory)


def test_misshaped_tensor_is_named_with_its_file(directory):
    rewrite(directory, **{NORM: torch.ones(3)})
    with pytest.raises(InvalidArgumentError, match=r"layers\.1.*model\.safetensors.*\[3\].*\[64\]"):
        load(directory)


def test_unexpected_tensor_is_named_with_its_file(directory):
    rewrite(directory, **{"model.layers.9.mlp.up_proj.weight": torch.ones(3)})
    with pytest.raises(InvalidArgumentError, match=r"layers\.9.*model\.safetensors"):
        load(directory)


def test_quantised_tensor_is_refused(directory):
    rewrite(directory, **{NORM: torch.ones(64, dtype=torch.int8)})
    with pytest.raises(InvalidArgumentError, match="quantised"):
        load(directory)


def test_truncated_file_is_named(directory):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InvalidArgumentError, match=r"model\.safetensors"):
        load(directory)


def test_constants_of_old_checkpoints_are_ignored(directory):
    rewrite(directory, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    load(directory)


def test_head_beside_a_tied_embedding_is_ignored(tmp_path):
    directory = make_checkpoint(tmp_path, "llama", tie_word_embeddings=True)
    embedding = load_file(directory / "model.safetensors")["model.embed_tokens.weight"]
    rewrite(directory, **{"lm_head.weight": embedding.clone()})
    check_against_transformers(directory)


def test_float16_is_refused_on_the_cpu(directory):
    with pytest.raises(InvalidArgumentError, match="bfloat16"):
        load(directory, dtype="float16")


def test_config_of_another_size_is_refused(directory):
    edit_json(directory / "config.json", intermediate_size=96)
    with pytest.raises(InvalidArgumentError, match=r"config\.json"):
        load(directory)
