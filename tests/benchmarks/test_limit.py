"""The physical limit: every product counted once, at the rate of its shape."""

from dataclasses import replace

import pytest
import torch

from benchmarks.limit import burst_limit
from benchmarks.model import BENCHMARK_SPEC
from benchmarks.product import measured_limit
from benchmarks.serve.workload import WorkloadSpec

FIXED = WorkloadSpec(num_requests=4, prompt_mean=128, prompt_sigma=0.0, output_mean=11)


def test_flops_are_those_of_prompts_and_decodes() -> None:
    limit = burst_limit(FIXED, BENCHMARK_SPEC, body_s=lambda rows: 1.0, head_s=lambda rows: 0.0)
    head = 2 * 512 * 32_000
    body = BENCHMARK_SPEC.flops_per_token - head
    assert limit.flops == (4 * 128 + 40) * body + (4 + 40) * head


def test_prompts_run_in_chunks_and_outputs_in_steps_of_all_sequences() -> None:
    limit = burst_limit(FIXED, BENCHMARK_SPEC, body_s={1024: 2.0, 4: 0.1}.__getitem__, head_s={4: 0.5}.__getitem__)
    assert limit.products_s == pytest.approx(0.5 * 2.0 + 0.5 + 10 * (0.1 + 0.5))
    assert limit.output_tokens_per_s == pytest.approx(44 / limit.products_s)


def test_shared_prefixes_and_prompts_of_samples_are_computed_once() -> None:
    def num_prompt_tokens(spec: WorkloadSpec) -> float:
        return burst_limit(
            spec, BENCHMARK_SPEC, body_s=lambda rows: float(rows == 1024), head_s=lambda rows: 0.0
        ).products_s

    alone = num_prompt_tokens(FIXED)
    assert num_prompt_tokens(replace(FIXED, n=4)) == alone
    assert num_prompt_tokens(replace(FIXED, shared_prefix_tokens=1024)) == alone + 1


def test_measured_limit_of_a_small_model() -> None:
    torch.set_num_threads(1)
    small = replace(BENCHMARK_SPEC, vocab_size=64, hidden_size=32, num_layers=1, intermediate_size=32, head_dim=4)
    limit = measured_limit(FIXED, small)
    assert limit.products_s > 0
    assert limit.flops_per_s == limit.flops / limit.products_s
