from dataclasses import replace

import pytest
import torch

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.model import ExpertsSpec, ModelSpec
from headway.models.experts import MixtureOfExperts
from headway.models.layout import alone
from tests.checkpoints import make_checkpoint
from tests.models.oracle import check_against_transformers

CPU = torch.device("cpu")
VARIANTS = {
    "mixtral": ("mixtral", {}),
    "mixtral, window": ("mixtral", {"sliding_window": 24}),
    "mixtral, one expert each": ("mixtral", {"num_experts_per_tok": 1}),
    "qwen2-moe": ("qwen2_moe", {}),
    "qwen2-moe, normalised": ("qwen2_moe", {"norm_topk_prob": True}),
    "qwen2-moe, every second layer sparse": ("qwen2_moe", {"num_hidden_layers": 4, "decoder_sparse_step": 2}),
    "qwen2-moe, windows": ("qwen2_moe", {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 2}),
    "qwen3-moe": ("qwen3_moe", {}),
    "qwen3-moe, not normalised": ("qwen3_moe", {"norm_topk_prob": False}),
    "qwen3-moe, first layer dense": ("qwen3_moe", {"num_hidden_layers": 3, "mlp_only_layers": [0]}),
    "qwen3-moe, all experts": ("qwen3_moe", {"num_experts_per_tok": 6}),
}


@pytest.mark.parametrize(("family", "overrides"), VARIANTS.values(), ids=VARIANTS.keys())
def test_greedy_tokens_and_logprobs_equal_transformers(tmp_path, family, overrides):
    check_against_transformers(make_checkpoint(tmp_path, family, **overrides))


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_chunked_prompts_give_the_same(tmp_path, family):
    check_against_transformers(make_checkpoint(tmp_path, family), chunk_size=5)


def make_layer(spec: ModelSpec, **options: object) -> MixtureOfExperts:
    experts = ExpertsSpec(num_experts=5, num_experts_per_tok=2, intermediate_size=24, **options)
    layout = alone(replace(spec, experts=experts))
    layer = MixtureOfExperts(spec, experts, layout=layout, dtype=torch.float32, device=CPU)
    generator = torch.Generator().manual_seed(3)
    for _, part in layer.named():
        part.view.copy_(torch.randn(part.view.shape, generator=generator) / 4)
    return layer


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> ModelSpec:
    return read_checkpoint(make_checkpoint(tmp_path_factory.mktemp("mixtral"), "mixtral")).spec


@pytest.mark.parametrize("shared_size", [0, 16])
@torch.inference_mode()
def test_a_token_does_not_depend_on_its_batch(spec, shared_size):
    layer = make_layer(spec, shared_intermediate_size=shared_size)
    for linear in layer.linears():
        linear.pack()
    x = torch.randn(40, spec.hidden_size)
    together = layer(x)
    for first, last in ((0, 1), (3, 10), (20, 40)):
        assert torch.equal(layer(x[first:last]), together[first:last])


@torch.inference_mode()
def test_no_tokens_give_none(spec):
    assert make_layer(spec)(torch.empty(0, spec.hidden_size)).shape == (0, spec.hidden_size)


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_all_experts_are_held_and_only_the_chosen_ones_computed(tmp_path, family):
    checkpoint = read_checkpoint(make_checkpoint(tmp_path, family))
    spec, experts = checkpoint.spec, checkpoint.spec.experts
    assert spec.weight_bytes == pytest.approx(checkpoint.weight_bytes, rel=0.02)
    every_one = replace(spec, experts=replace(experts, num_experts_per_tok=experts.num_experts))
    num_idle = experts.num_experts - experts.num_experts_per_tok
    idle_weights = spec.num_layers * num_idle * 3 * spec.hidden_size * experts.intermediate_size
    assert every_one.flops_per_token - spec.flops_per_token == 2 * idle_weights
    assert every_one.num_parameters == spec.num_parameters
