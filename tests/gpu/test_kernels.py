"""The CUDA kernels on a GPU: the same vectors as on the CPU, and a captured graph that serves several steps."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.kernels import reference
from headway.kernels.cuda import build, decode_slots, merge_partials
from tests.kernels.cuda.cases import BF16, CASES, FP8, DecodeCase, DecodeStep
from tests.kernels.test_merge_partials import random_partials

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)
if not build.is_current():
    pytest.skip("not run: the CUDA kernels are not compiled (`make cuda`)", allow_module_level=True)

DEVICE = torch.device("cuda")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.head_dim}-{case.num_heads}-{case.cache_dtype}")
def test_decode_equals_the_definition(case: DecodeCase) -> None:
    step = DecodeStep(case, DEVICE)
    step.check(*step.run())


@pytest.mark.parametrize("cache_dtype", [BF16, FP8])
def test_there_are_slots_for_two_ctas_on_every_multiprocessor(cache_dtype: torch.dtype) -> None:
    q = torch.empty(0, 32, 128, dtype=BF16, device=DEVICE)
    k_cache = torch.empty(0, 8, 16, 128, dtype=cache_dtype, device=DEVICE)
    num_sms = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    ctas_per_sm = 1 if torch.cuda.get_device_capability(DEVICE) < (9, 0) else 2
    assert decode_slots(q, k_cache=k_cache) >= ctas_per_sm * num_sms // 8


@pytest.mark.parametrize("lengths", [(65536, *[1024] * 31), (5000,) * 40, (1,) * 100])
def test_large_batches_equal_the_definition(lengths: tuple[int, ...]) -> None:
    case = DecodeCase(lengths=lengths, head_dim=128, num_heads=32, num_kv_heads=8, num_slots=33)
    step = DecodeStep(case, DEVICE)
    step.check(*step.run())


@pytest.mark.parametrize(
    "options",
    [{}, {"cache_dtype": FP8}, {"num_heads": 16, "cache_dtype": FP8, "key_scale": 0.5, "value_scale": 2.0}],
    ids=["float16", "fp8", "fp8, matrix"],
)
def test_a_captured_graph_serves_steps_of_other_lengths(options: dict[str, Any]) -> None:
    case = DecodeCase(lengths=(700, 300, 20), num_slots=32, **options)
    step = DecodeStep(case, DEVICE)
    step.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    step.table.load(step.rows)
    with torch.cuda.graph(graph):
        out, lse = step.attend()
    for lengths in ((700, 300, 20), (650, 299, 1), (17, 0, 0)):
        shorter = DecodeStep(replace(case, lengths=lengths)).rows
        step.rows = shorter
        step.table.load(shorter)
        graph.replay()
        step.check(out, lse)


@pytest.mark.parametrize("num_shards", [1, 2, 8, 40])
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_partial_results_of_several_devices_are_merged(num_shards: int, head_dim: int) -> None:
    partials = random_partials(num_shards, num_tokens=70, head_dim=head_dim).to(DEVICE)
    expected = torch.empty((*partials.shape[1:3], head_dim), dtype=torch.float64, device=DEVICE)
    reference.merge_partials(partials.double(), out=expected)
    lse = torch.empty(partials.shape[1:3], device=DEVICE)
    out = merge_partials(partials, dtype=torch.float32, lse=lse)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(lse.double(), partials[..., -1].double().logsumexp(dim=0), rtol=1e-5, atol=1e-5)
