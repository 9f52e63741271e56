"""The threads that the CPU kernels share."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from headway.kernels.build import find_compiler
from headway.kernels.cpu import CpuKernels
from headway.kernels.variants import SOURCES

PROGRAM = Path(__file__).with_name("team_regions.cpp")
NO_RANDOM_ADDRESSES = ("setarch", "--addr-no-randomize")  # ThreadSanitizer's own memory must stay free


def compile_program(directory: Path, *flags: str) -> Path:
    program = directory / "team_regions"
    sources = (str(PROGRAM), str(SOURCES / "team.cpp"))
    command = (find_compiler(), "-std=c++17", "-O1", "-g1", "-pthread", f"-I{SOURCES}", *flags, *sources)
    subprocess.run((*command, "-o", str(program)), check=True, timeout=300)
    return program


@pytest.mark.parametrize("flags", [(), ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")])
def test_every_task_is_done_once(tmp_path: Path, flags: tuple[str, ...]) -> None:
    program = compile_program(tmp_path, *flags)
    for seed in range(3):
        subprocess.run((program, str(seed), "fork"), check=True, timeout=120)


def test_tasks_of_threads_do_not_race(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "-fsanitize=thread")
    if subprocess.run((*NO_RANDOM_ADDRESSES, "true"), check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("ThreadSanitizer needs fixed addresses, which this process may not ask for")
    subprocess.run((*NO_RANDOM_ADDRESSES, program, "0"), check=True, timeout=300)


def test_python_threads_get_their_own_results(kernels: CpuKernels) -> None:
    weight = torch.randn(400, 256)
    panels = kernels.pack_linear(weight, is_gated=False)
    inputs = [torch.randn(1 + 7 * index, 256) for index in range(24)]

    def multiply(x: torch.Tensor) -> torch.Tensor:
        return kernels.linear(
            x,
            panels=panels,
            scales=None,
            out_features=400,
            is_gated=False,
            bias=None,
            activation="none",
            residual=None,
        )

    expected = [multiply(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            assert all(map(torch.equal, pool.map(multiply, inputs), expected))
