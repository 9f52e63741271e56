"""Which variant is loaded, and whose threads it runs on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.kernels import library, reference
from headway.kernels.cpu import default_kernels
from headway.kernels.dispatch import kernels_for
from headway.kernels.library import ISA_VARIABLE, chosen_isa, load_library, supported_isas

# Prints the number of threads: before any work, after ours, and after more of it.
COUNT_THREADS = """
import os
import torch
from headway.kernels import silu_mul
torch.set_num_threads({num_threads})
def count_threads():
    return len(os.listdir("/proc/self/task"))
before = count_threads()
silu_mul(torch.randn(64, 4096))
after_first = count_threads()
silu_mul(torch.randn(640, 4096))
print(before, after_first, count_threads())
"""


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return result.stdout


def test_the_fastest_supported_variant_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ISA_VARIABLE, raising=False)
    assert chosen_isa() == supported_isas()[0]
    assert supported_isas()[-1] == "portable"


def test_the_environment_overrides_the_variant() -> None:
    code = "from headway.kernels.cpu import default_kernels; print(default_kernels().isa)"
    assert run_python(code, HEADWAY_CPU_ISA="portable").strip() == "portable"


def test_an_unknown_variant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, "mmx")
    with pytest.raises(InvalidArgumentError, match=r"'mmx'.*Choose one of .*portable"):
        chosen_isa()


def test_a_missing_library_names_the_build_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "library_path", lambda isa: tmp_path / f"{isa}.so")
    with pytest.raises(FailedPreconditionError, match=r"python -m headway\.kernels\.build"):
        load_library("portable")


def test_a_stale_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "build_stamp", lambda isa: "of other sources")
    with pytest.raises(FailedPreconditionError, match="other sources"):
        load_library("portable")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("num_threads", [1, 3])
def test_kernels_compute_on_as_many_threads_as_torch(num_threads: int) -> None:
    before, after_first, after_second = map(int, run_python(COUNT_THREADS.format(num_threads=num_threads)).split())
    assert after_first == after_second == before + num_threads - 1


def test_other_devices_use_the_reference() -> None:
    assert kernels_for(torch.empty(0, device="meta")) is reference
    assert kernels_for(torch.empty(0)) is default_kernels()
