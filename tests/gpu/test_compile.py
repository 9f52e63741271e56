"""`torch.compile` takes every kernel whole on a GPU too."""

import pytest
import torch

from headway.kernels.cuda import build
from tests.kernels.cuda.compiled_calls import Call, calls_on, check_compiled

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)
if not build.is_current():
    pytest.skip("not run: the CUDA kernels are not compiled (`make cuda`)", allow_module_level=True)


@pytest.mark.parametrize("call", calls_on(torch.device("cuda")), ids=str)
def test_a_compiled_function_gives_what_it_gives_by_itself(call: Call) -> None:
    check_compiled(call)
