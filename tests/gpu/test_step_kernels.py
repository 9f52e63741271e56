"""The other kernels of a step on a GPU: the same vectors as on the CPU."""

import pytest
import torch

from headway.core.request import SamplingParams
from headway.kernels import reference
from headway.kernels.cuda import add_rms_norm, build, sample_tokens, silu_mul, swap_blocks
from tests.kernels.cuda.prefill_cases import PREFILL_CASES, PrefillCase, PrefillStep
from tests.kernels.cuda.row_steps import columns_of, sampled_on_the_cpu

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)
if not build.is_current():
    pytest.skip("not run: the CUDA kernels are not compiled (`make cuda`)", allow_module_level=True)

DEVICE = torch.device("cuda")


@pytest.mark.parametrize("case", PREFILL_CASES, ids=lambda case: f"{case.head_dim}-{case.num_heads}-{case.cache_dtype}")
def test_prefill_equals_the_definition(case: PrefillCase) -> None:
    step = PrefillStep(case, DEVICE)
    step.check(*step.run())


def test_long_prompts_equal_the_definition() -> None:
    case = PrefillCase(query_lens=(512, 1), seq_lens=(4096, 9000), head_dim=128, num_heads=32, num_kv_heads=8)
    step = PrefillStep(case, DEVICE)
    step.check(*step.run())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_equal_the_definition(dtype: torch.dtype) -> None:
    x, residual = torch.randn(2, 300, 4096, device=DEVICE).to(dtype)
    weight, own, unit = x[0].clone(), residual.clone(), max(torch.finfo(dtype).eps, 1e-5)
    out = add_rms_norm(x, own, weight, eps=1e-5)
    assert torch.equal(own, (residual.float() + x.float()).to(dtype))
    exact = reference.rms_norm(own.double(), weight=weight.double(), eps=1e-5)
    torch.testing.assert_close(out.double(), exact, rtol=unit, atol=unit)
    torch.testing.assert_close(silu_mul(x).double(), reference.silu_mul(x.double()), rtol=unit, atol=unit)


def test_tokens_are_those_of_the_sampler_on_the_cpu() -> None:
    """But for a few: an exponential function may differ in its last bit, and so may a threshold."""
    params = [SamplingParams(temperature=0.8, top_k=50, top_p=0.9, min_p=0.01, seed=seed) for seed in range(500)]
    logits = torch.randn(500, 128_256) * 3
    columns = {name: column.to(DEVICE) for name, column in columns_of(params, [3] * 500).items()}
    tokens = sample_tokens(logits.to(DEVICE), **columns)
    assert (tokens.cpu() == sampled_on_the_cpu(logits, params, [3] * 500)).sum() >= 495
    assert torch.equal(tokens, sample_tokens(logits.to(DEVICE), **columns))


def test_blocks_travel_to_the_host_and_back() -> None:
    memory = torch.randn(4, 2, 60, 8, 16, 128, device=DEVICE)
    host_memory = torch.zeros(50, 4, 2, 8, 16, 128).pin_memory()
    before, pairs = memory.clone(), torch.stack((torch.randperm(60)[:50], torch.randperm(50)), dim=1)
    swap_blocks(memory, host_memory, pairs=pairs, is_out=True)
    memory[:, :, pairs[:, 0].to(DEVICE)] = 0
    swap_blocks(memory, host_memory, pairs=pairs.flip(1).contiguous(), is_out=False)
    assert torch.equal(memory, before)
