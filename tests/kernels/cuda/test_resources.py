"""The kernels compiled for GPUs keep to their budgets of registers and of memory beside them."""

import os
import subprocess
import sys

import pytest

from headway.kernels.cuda import build
from headway.kernels.cuda.resources import Resources, excesses, parse_report, read_budgets
from headway.kernels.cuda.sources import ARCHITECTURES, GPU_REPORT

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN7headway13decode_vectorI13__nv_fp8_e4m3Li128ELi4EEEvNS_13DecodeProblemENS_\
13DecodeOptionsEi' for 'sm_90a'
ptxas info    : Function properties for _ZN7headway13decode_vectorI13__nv_fp8_e4m3Li128ELi4EEEvNS_13DecodeProblemENS_\
13DecodeOptionsEi
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 123 registers, used 1 barriers
ptxas info    : Compiling entry function '_ZN7headway14merge_partialsENS_12MergeProblemE' for 'sm_80'
ptxas info    : Function properties for _ZN7headway14merge_partialsENS_12MergeProblemE
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers
"""
USAGE = {
    "decode_vector<fp8, 128, 4>": {"sm_90a": Resources(123, 20, 16)},
    "merge_partials": {"sm_80": Resources(40, 0, 0)},
}


def test_reports_are_read() -> None:
    assert parse_report(REPORT) == USAGE


def test_what_exceeds_its_budget_is_named() -> None:
    assert excesses(USAGE, USAGE) == []
    budgets = {
        "decode_vector<fp8, 128, 4>": {"sm_90a": Resources(128, 20, 0)},
        "merge_partials": {"sm_90a": Resources(40, 0, 0)},
        "gone": {},
    }
    assert excesses(USAGE, budgets) == [
        "decode_vector<fp8, 128, 4> for sm_90a: 123 registers, 20 bytes spilled and 16 of stack, of 128, 20 and 0",
        "gone: has a budget, and is not compiled",
        "merge_partials for sm_80: has no budget",
    ]


def test_the_compiled_kernels_keep_to_their_budgets() -> None:
    if not build.is_current():
        pytest.skip("the CUDA kernels are not compiled for GPUs: run `make cuda`")
    usage = parse_report(GPU_REPORT.read_text())
    assert excesses(usage, read_budgets()) == []
    assert {architecture for kernel in usage.values() for architecture in kernel} == {f"sm_{a}" for a in ARCHITECTURES}


def test_no_budget_allows_numbers_in_memory() -> None:
    kept_in_memory = [
        name
        for name, kernel in read_budgets().items()
        if any(used.spilled_bytes or used.stack_bytes for used in kernel.values())
    ]
    assert kept_in_memory == []


def test_without_nvcc_the_error_says_how_to_get_it() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from headway.kernels.cuda.build import find_nvcc; find_nvcc()"],
        env={**os.environ, "PATH": "/nonexistent", "CUDA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "No nvcc found" in result.stderr
    assert "make cuda" in result.stderr
