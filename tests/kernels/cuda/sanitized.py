"""Runs every kernel of a library under a sanitizer: `python -m tests.kernels.cuda.sanitized PATH [DEVICE]`.

The library is called directly: under AddressSanitizer torch's operators take half a minute to be imported, and the
tests' own framework some seconds. A fault ends the process; results are compared as in the tests.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

from headway.core.request import SamplingParams
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cache_steps import ROTARY_CASES, ROTATION_OPTIONS, RotaryStep
from tests.kernels.cuda.cases import BF16, CASES, F16, F32, DecodeStep
from tests.kernels.cuda.prefill_cases import PREFILL_CASES, PrefillStep
from tests.kernels.cuda.row_steps import NormStep, SampleStep

RANDOM_SCHEDULE = 20


def copy_and_gate(kernels: CudaKernels, device: torch.device, dtype: torch.dtype) -> None:
    planes, host_planes = torch.randint(255, (6, 4, 320)).byte().to(device), host_memory_for(device, (3, 6, 320))
    kernels.copy_blocks(planes, torch.tensor([[0, 3], [1, 2]]).to(device))
    kernels.swap_blocks(planes, host_planes, torch.tensor([[3, 2]]), is_out=True)
    kernels.swap_blocks(planes, host_planes, torch.tensor([[2, 1]]), is_out=False)
    assert torch.equal(planes[:, 1], planes[:, 3])
    gate_up = torch.randn(3, 400).to(device, dtype)
    kernels.silu_mul(gate_up, torch.empty(3, 200, dtype=dtype, device=device))


def rotate(kernels: CudaKernels, step: RotaryStep) -> None:
    """Without a cache."""
    q, k, _ = step.heads_of(step.copy())
    kernels.rotate(q, k, **{name: step.options[name] for name in ROTATION_OPTIONS})


def host_memory_for(device: torch.device, shape: tuple[int, ...]) -> Tensor:
    """Pinned where the device is a GPU."""
    return torch.zeros(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")


def main() -> None:
    path, *names = sys.argv[1:]
    kernels, device = CudaKernels(Path(path)), torch.device(*names or ["cpu"])
    if device.type == "cpu":
        kernels.set_schedule(RANDOM_SCHEDULE)
    steps = [
        *(DecodeStep(case, device) for case in CASES),
        *(PrefillStep(case, device) for case in PREFILL_CASES),
        *(RotaryStep(case, device) for case in ROTARY_CASES),
        *(NormStep.of(600, dtype, device) for dtype in (F32, BF16, F16)),
        SampleStep.of(1500, [SamplingParams(top_k=7, top_p=0.9, seed=seed) for seed in range(4)], device),
    ]
    for step in steps:
        step.check(*step.run_with(kernels))
    rotate(kernels, RotaryStep(ROTARY_CASES[-1], device))
    for dtype in (F32, BF16, F16):
        copy_and_gate(kernels, device, dtype)


if __name__ == "__main__":
    main()
