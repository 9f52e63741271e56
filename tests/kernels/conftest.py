"""Fixtures: every test that takes `kernels` runs once for each variant of the library that this processor runs.

One that takes `implementation` runs on the reference too.
"""

from collections.abc import Iterator

import pytest
import torch

from headway.kernels import reference
from headway.kernels.build import build
from headway.kernels.cpu import CpuKernels
from headway.kernels.dispatch import Kernels
from headway.kernels.library import supported_isas
from headway.kernels.variants import isa_flags

SEED = 0


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    build()


@pytest.fixture(scope="session", params=list(isa_flags()))
def kernels(request: pytest.FixtureRequest, built: None) -> CpuKernels:
    if request.param not in supported_isas():
        pytest.skip(f"this processor does not run {request.param}")
    return CpuKernels(request.param)


@pytest.fixture(scope="session", params=[*isa_flags(), "reference"])
def implementation(request: pytest.FixtureRequest, built: None) -> Kernels:
    if request.param == "reference":
        return reference
    if request.param not in supported_isas():
        pytest.skip(f"this processor does not run {request.param}")
    return CpuKernels(request.param)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(SEED)
    yield
    torch.set_num_threads(num_threads)
