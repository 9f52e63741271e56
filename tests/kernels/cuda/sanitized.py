"""Runs every kernel of a library that was compiled with sanitizers: `python -m tests.kernels.cuda.sanitized PATH`.

The library is called directly: under AddressSanitizer torch's operators take half a minute to be imported, and the
tests' own framework some seconds. A fault ends the process; results are compared as in the tests.
"""

import sys
from pathlib import Path

import torch

from headway.core.request import SamplingParams
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import BF16, CASES, F16, F32, FP8, DecodeStep
from tests.kernels.cuda.prefill_cases import PREFILL_CASES, PrefillStep
from tests.kernels.cuda.row_steps import NormStep, SampleStep

RANDOM_SCHEDULE = 20


def write_and_copy(kernels: CudaKernels, dtype: torch.dtype, cache_dtype: torch.dtype) -> None:
    q, k, v = torch.randn(7, 9, 80).to(dtype).split((5, 2, 2), dim=1)
    caches = [torch.zeros(4, 2, 8, 80).to(cache_dtype) for _ in range(2)]
    slots, positions, cos_sin = torch.tensor([3, 9, -1, 31, 0, 17, 16]), torch.arange(7), torch.randn(7, 32)
    norms = (torch.ones(80, dtype=dtype), None)
    kernels.rotate_and_cache(q, k, v, *caches, slots, positions, cos_sin, *norms, 1e-5, 1.0, 1.0)
    kernels.rotate(q, k, positions, cos_sin, *norms, 1e-5)
    planes, host_planes = torch.randint(255, (6, 4, 320)).byte(), torch.zeros(3, 6, 320).byte()
    kernels.copy_blocks(planes, torch.tensor([[0, 3], [1, 2]]))
    kernels.swap_blocks(planes, host_planes, torch.tensor([[3, 2]]), is_out=True)
    kernels.swap_blocks(planes, host_planes, torch.tensor([[2, 1]]), is_out=False)
    assert torch.equal(planes[:, 1], planes[:, 3])
    gate_up = torch.randn(3, 400).to(dtype)
    kernels.silu_mul(gate_up, torch.empty(3, 200, dtype=dtype))


def main() -> None:
    kernels = CudaKernels(Path(sys.argv[1]))
    kernels.set_schedule(RANDOM_SCHEDULE)
    steps = [
        *(DecodeStep(case) for case in CASES),
        *(PrefillStep(case) for case in PREFILL_CASES),
        *(NormStep.of(600, dtype) for dtype in (F32, BF16, F16)),
        SampleStep.of(1500, [SamplingParams(top_k=7, top_p=0.9, seed=seed) for seed in range(4)]),
    ]
    for step in steps:
        step.check(*step.run_with(kernels))
    for dtype, cache_dtype in ((F32, F32), (F32, FP8), (BF16, BF16), (F16, F16)):
        write_and_copy(kernels, dtype, cache_dtype)


if __name__ == "__main__":
    main()
