"""Sampling, against the sampler that the worker uses on the CPU, and against the distribution itself."""

from typing import Any

import numpy as np
import pytest
import torch

from headway.core.request import SamplingParams
from headway.kernels import reference
from headway.kernels.cuda import sample_tokens
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.row_steps import columns_of, sampled_on_the_cpu
from tests.kernels.cuda.schedules import SCHEDULES


# fewer tokens than a part of a warp, than all warps take at once, and several rounds
@pytest.mark.parametrize("vocab_size", [1, 40, 1000, 3000, 50_000])
def test_equals_the_sampler_of_the_worker(host: CudaKernels, vocab_size: int) -> None:
    generator = np.random.default_rng(vocab_size)
    num_rows = 24 if vocab_size < 50_000 else 4
    params = [
        SamplingParams(
            temperature=float(generator.choice([0.05, 0.3, 1.0, 2.5])),
            top_k=int(generator.choice([0, 1, 5, 700])),
            top_p=float(generator.choice([1.0, 0.9, 0.3])),
            min_p=float(generator.choice([0.0, 0.02])),
            seed=int(generator.integers(1 << 62)),
        )
        for _ in range(num_rows)
    ]
    logits = torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(0)) * 3
    positions = generator.integers(0, 5000, num_rows).tolist()
    expected = sampled_on_the_cpu(logits, params, positions)
    assert torch.equal(reference.sample_tokens(logits, **columns_of(params, positions)), expected)
    for schedule in SCHEDULES[:1] if vocab_size == 50_000 else SCHEDULES:
        host.set_schedule(schedule)
        assert torch.equal(sample_tokens(logits, **columns_of(params, positions)), expected)


def test_tokens_that_tie_with_the_last_one_stay(host: CudaKernels) -> None:
    logits = torch.zeros(200, 64)
    logits[:, 10:20] = 2.0
    params = [SamplingParams(temperature=1.0, top_k=3, seed=seed) for seed in range(200)]
    tokens = sample_tokens(logits, **columns_of(params, [0] * 200))
    assert set(tokens.tolist()) == set(range(10, 20))
    assert torch.equal(tokens, sampled_on_the_cpu(logits, params, [0] * 200))


def test_a_top_k_beyond_the_tokens_that_can_be_drawn_cuts_nothing(host: CudaKernels) -> None:
    """At this temperature all but five weights vanish."""
    logits = torch.full((40, 3000), -100.0)
    logits[:, 7::700] = torch.linspace(0, 0.03, 5)
    params = [SamplingParams(temperature=0.02, top_k=2000, top_p=1 - row % 2 * 0.4, seed=row) for row in range(40)]
    for schedule in SCHEDULES:
        host.set_schedule(schedule)
        tokens = sample_tokens(logits, **columns_of(params, [0] * 40))
        assert torch.equal(tokens, sampled_on_the_cpu(logits, params, [0] * 40))
    assert len(set(tokens.tolist())) == 5


def test_draws_follow_the_distribution(host: CudaKernels) -> None:
    host.set_schedule(0)
    num_draws, logits = 1000, torch.tensor([0.5, -1.0, 2.0, 0.0, -torch.inf, 1.0])
    params = [SamplingParams(temperature=0.8, top_p=0.97, seed=7) for _ in range(num_draws)]
    tokens = sample_tokens(logits.expand(num_draws, -1).contiguous(), **columns_of(params, list(range(num_draws))))
    shares = (logits / 0.8).softmax(dim=0).double()
    order = shares.argsort(descending=True)
    kept = order[: int((shares[order].cumsum(dim=0) < 0.97).sum()) + 1]
    counts = torch.bincount(tokens, minlength=6)
    assert counts.sum() == counts[kept].sum() == num_draws
    wanted = shares[kept] / shares[kept].sum() * num_draws
    distance = ((counts[kept] - wanted) ** 2 / wanted).sum()
    degrees = torch.tensor(len(kept) - 1, dtype=torch.float64)
    assert torch.special.gammaincc(degrees / 2, distance / 2) > 1e-3  # the chi-square test's p


def test_without_a_temperature_the_first_of_the_best_is_taken(host: CudaKernels) -> None:
    logits = torch.randn(4, 2000)
    logits[0, [70, 1500]] = 9.0
    logits[1] = -torch.inf
    logits[2, [1999, 300]] = torch.nan
    params = [SamplingParams(temperature=0.0) for _ in range(4)]
    for schedule in SCHEDULES:
        host.set_schedule(schedule)
        tokens = sample_tokens(logits, **columns_of(params, [0] * 4))
        assert tokens.tolist() == [70, 0, 300, int(logits[3].argmax())]
        assert torch.equal(tokens, reference.sample_tokens(logits, **columns_of(params, [0] * 4)))


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_row_weighs_all_tokens_alike(host: CudaKernels, broken: float) -> None:
    logits = torch.randn(20, 100)
    logits[:, 3:] = broken
    if broken == -torch.inf:
        logits[:] = broken
    params = [SamplingParams(temperature=1.0, top_p=0.9, seed=seed) for seed in range(20)]
    tokens = sample_tokens(logits, **columns_of(params, [1] * 20))
    assert torch.equal(tokens, sampled_on_the_cpu(logits, params, [1] * 20))
    assert torch.equal(tokens, reference.sample_tokens(logits, **columns_of(params, [1] * 20)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": torch.zeros(2, 9).half()}, "logits must be float32; it is float16"),
        ({"logits": torch.zeros(2, 0)}, "logits must be of 1 to 1048576 columns"),
        ({"seeds": torch.zeros(2)}, r"seeds must be int64 \[2\]"),
        ({"top_p": torch.ones(2)}, r"top_p must be float64 \[2\]"),
        ({"min_p": torch.zeros(3)}, r"min_p must be float32 \[2\]"),
    ],
)
def test_bad_operands_are_named(host: CudaKernels, changes: dict[str, Any], message: str) -> None:
    columns = columns_of([SamplingParams(), SamplingParams()], [0, 0])
    with pytest.raises(ValueError, match=message):
        sample_tokens(**{"logits": torch.zeros(2, 9), **columns, **changes})
