"""`torch.compile` takes every public function whole, and gives what it gives by itself."""

import pytest
import torch

from headway.kernels import cuda
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.compiled_calls import Call, calls_on, check_compiled

CALLS = calls_on(torch.device("cpu"))


def test_every_public_function_is_compiled_here() -> None:
    functions = {name for name in cuda.__all__ if callable(getattr(cuda, name)) and name.islower()}
    assert functions - {str(call) for call in CALLS} == {"plan_decode", "decode_slots"}, "which run on the host"


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_compiled_function_gives_what_it_gives_by_itself(host: CudaKernels, call: Call) -> None:
    host.set_schedule(0)
    check_compiled(call)
