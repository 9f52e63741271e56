"""The kernels on a GPU under compute-sanitizer: memory, shared-memory hazards, barriers, and what was never written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headway.kernels.cuda import build
from headway.kernels.cuda.sources import GPU_LIBRARY

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)
if not build.is_current():
    pytest.skip("not run: the CUDA kernels are not compiled (`make cuda`)", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
OURS = ("--kernel-name", "kernel_substring=headway")


@pytest.mark.parametrize(
    ("tool", "checked"), [("memcheck", OURS), ("racecheck", OURS), ("synccheck", OURS), ("initcheck", ())]
)
@pytest.mark.timeout(1800)
def test_the_vectors_pass_under_compute_sanitizer(tool: str, checked: tuple[str, ...]) -> None:
    """Each tensor is an allocation of its own, so that no fault hides behind another tensor.

    initcheck must see torch's kernels as well, which write what ours read.
    """
    sanitizer = build.find_tool("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("not run: there is no compute-sanitizer (`make cuda` fetches one with nvcc)")
    options = ["--tool", tool, "--error-exitcode", "9", *checked]
    result = subprocess.run(
        [sanitizer, *options, sys.executable, "-m", "tests.kernels.cuda.sanitized", str(GPU_LIBRARY), "cuda"],
        cwd=ROOT,
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-8000:]
