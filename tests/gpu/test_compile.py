"""`torch.compile` takes every kernel whole on a GPU too."""

import pytest
import torch

from headway.kernels.cuda import build, swap_blocks
from tests.kernels.cuda.compiled_calls import Call, calls_on, check_compiled

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)
if not build.is_current():
    pytest.skip("not run: the CUDA kernels are not compiled (`make cuda`)", allow_module_level=True)


CALLS = calls_on(torch.device("cuda"))
SWAPS = [call for call in CALLS if call.function is swap_blocks]


@pytest.mark.parametrize("call", [call for call in CALLS if call not in SWAPS], ids=str)
def test_a_compiled_function_gives_what_it_gives_by_itself(call: Call) -> None:
    check_compiled(call)


@pytest.mark.parametrize("call", SWAPS, ids=str)
def test_a_compiled_swap_is_refused(call: Call) -> None:
    """A compiled function works on copies of what it writes, and torch's copies of pinned memory are not pinned."""
    with pytest.raises(ValueError, match="host_blocks must be in pinned memory"):
        check_compiled(call)
