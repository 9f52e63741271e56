"""Networks in stages, one after the other in this process, against `transformers` and against the whole network."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.parallel_config import ParallelConfig
from headway.models.layout import alone
from headway.models.registry import build_model
from tests.checkpoints import make_checkpoint
from tests.models.oracle import TOLERANCE, random_prompts, reference_logprobs
from tests.models.ranks import compute_logits, compute_stages, read_progress, stages_of

FOUR = {"num_hidden_layers": 4}
GPT2_FOUR = {"n_layer": 4}
NARROW = {"do_layer_norm_before": False, "word_embed_proj_dim": 32}

VARIANTS = {
    "llama": ("llama", FOUR),
    "llama, all heads, tied": ("llama", {**FOUR, "num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama, five heads": (
        "llama",
        {**FOUR, "num_attention_heads": 5, "hidden_size": 80, "num_key_value_heads": 5},
    ),
    "mistral, window": ("mistral", {**FOUR, "sliding_window": 24}),
    "qwen2": ("qwen2", FOUR),
    "qwen3": ("qwen3", FOUR),
    "smollm3": ("smollm3", {}),
    "mixtral": ("mixtral", FOUR),
    "qwen2-moe, every second layer sparse": ("qwen2_moe", {**FOUR, "decoder_sparse_step": 2}),
    "qwen3-moe, first layer dense": ("qwen3_moe", {**FOUR, "mlp_only_layers": [0]}),
    "opt": ("opt", FOUR),
    "opt, norms after, narrow embedding": ("opt", {**FOUR, **NARROW}),
    "opt, untied": ("opt", {**FOUR, "tie_word_embeddings": False}),
    "gpt2": ("gpt2", GPT2_FOUR),
    "gpt2, odd vocabulary": ("gpt2", {**GPT2_FOUR, "vocab_size": 509}),
    "llama, odd vocabulary": ("llama", {**FOUR, "vocab_size": 517}),
    "gpt2, untied": ("gpt2", {**GPT2_FOUR, "tie_word_embeddings": False}),
}
PIPELINES = [
    ParallelConfig(pp=2),
    ParallelConfig(pp=2, stage_layers=(1, 3)),
    ParallelConfig(pp=3),
    ParallelConfig(pp=4),
]
EMBEDDINGS = ("embed_tokens.weight", "wte.weight")
HEADS = ("lm_head.weight",)


@pytest.fixture(scope="module", params=VARIANTS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, overrides = VARIANTS[request.param]
    return make_checkpoint(tmp_path_factory.mktemp(family), family, **overrides)


@pytest.mark.parametrize("options", [{}, {"quantization": "int8"}, {"dtype": "bfloat16"}], ids=str)
@torch.inference_mode()
def test_stages_give_bit_for_bit_what_the_whole_network_does(directory: Path, options: dict[str, str]) -> None:
    checkpoint = read_checkpoint(directory, **options)
    prompts = random_prompts(checkpoint.spec.vocab_size, (4, 9, 17, 40))
    expected = compute_logits(checkpoint, prompts, layout=alone(checkpoint.spec))
    assert expected is not None
    for parallel in PIPELINES:
        found = compute_stages(checkpoint, prompts, layouts=stages_of(checkpoint.spec, parallel))
        assert found is not None
        for split, whole in zip(found, expected, strict=True):
            assert torch.equal(split, whole), parallel


@torch.inference_mode()
def test_stages_agree_with_transformers(directory: Path) -> None:
    checkpoint = read_checkpoint(directory)
    reference = AutoModelForCausalLM.from_pretrained(directory).eval()
    prompts = random_prompts(checkpoint.spec.vocab_size, (9, 40))
    found = compute_stages(checkpoint, prompts, layouts=stages_of(checkpoint.spec, PIPELINES[1]))
    assert found is not None
    for prompt, logits in zip(prompts, found, strict=True):
        expected = reference_logprobs(reference, prompt)
        torch.testing.assert_close(logits.log_softmax(dim=1), expected, atol=TOLERANCE, rtol=0)
        assert logits.argmax(dim=1).tolist() == expected.argmax(dim=1).tolist()


def test_each_tensor_is_in_one_stage_and_the_head_in_all(directory: Path) -> None:
    checkpoint = read_checkpoint(directory)
    spec, meta = checkpoint.spec, torch.device("meta")
    whole = build_model(spec, layout=alone(spec), device=meta).tensors()
    for parallel in PIPELINES:
        stages = stages_of(checkpoint.spec, parallel)
        models = [build_model(spec, layout=layout, device=meta) for layout in stages]
        counts = Counter(name for model in models for name in model.tensors())
        heads = {name for name in whole if name in (EMBEDDINGS if spec.tied_embeddings else HEADS)}
        assert len(heads) == 1
        assert counts == {name: parallel.pp if name in heads else 1 for name in whole}
        (name,) = heads
        num_rows = [sum(len(part.view) for part in model.tensors()[name]) for model in models]
        first = num_rows[0] if not spec.tied_embeddings else len(stages[0].shard.head)  # else within the embedding
        assert first + sum(num_rows[1:]) == spec.vocab_size
        assert max(first, *num_rows[1:]) - min(first, *num_rows[1:]) <= 1


def test_a_stage_reads_its_own_part_only(directory: Path) -> None:
    checkpoint = read_checkpoint(directory)
    for layout in stages_of(checkpoint.spec, PIPELINES[1]):
        model = build_model(checkpoint.spec, layout=layout, device=torch.device("meta"))
        held = sum(part.view.nbytes for parts in model.tensors().values() for part in parts)
        num_read, total = read_progress(checkpoint, layout=layout)
        assert num_read == held
        assert total == pytest.approx(held, rel=0.05)
        assert held < checkpoint.weight_bytes
