"""All compiled CUDA kernels.

The same class calls the library that a C++ compiler makes of the same sources for the CPU.
"""

from functools import cache

from headway.core.errors import FailedPreconditionError
from headway.kernels.cuda.attention_calls import AttentionCalls
from headway.kernels.cuda.cache_calls import CacheCalls
from headway.kernels.cuda.row_calls import RowCalls
from headway.kernels.cuda.sources import GPU_LIBRARY, gpu_stamp


class CudaKernels(AttentionCalls, CacheCalls, RowCalls):
    """All kernels of one compiled library: for GPUs, or for the CPU."""


@cache
def gpu_kernels() -> CudaKernels:
    """The library for GPUs, loaded at the first call.

    Raises:
        FailedPreconditionError: it is not built, or from other sources than those beside it.
    """
    hint = "Run `make cuda`, which compiles it with nvcc."
    if not GPU_LIBRARY.exists():
        raise FailedPreconditionError(f"The CUDA kernels ({GPU_LIBRARY.name}) are not built.", hint=hint)
    kernels = CudaKernels(GPU_LIBRARY)
    if kernels.build_stamp != gpu_stamp():
        raise FailedPreconditionError(f"{GPU_LIBRARY.name} was built from other sources.", hint=hint)
    return kernels
