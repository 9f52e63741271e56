"""Pinned memory of the host, of exactly the size that is asked for: torch's allocator takes the next power of two."""

import weakref

import torch
from torch import Tensor


def pin(memory: Tensor, device: torch.device) -> Tensor:
    """`memory`, contiguous and new, in whose place it is from now on: the GPU's copies and kernels reach it there until
    the tensor is dropped. What was not touched before is taken here.

    Raises:
        torch.cuda.CudaError: the host has no such memory to pin.
    """
    if memory.nbytes == 0:
        return memory
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    with torch.cuda.device(device):  # or the call would set up the first GPU for a process that has another
        torch.cuda.check_error(cudart.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))
    dropped = weakref.finalize(memory, cudart.cudaHostUnregister, memory.data_ptr())
    dropped.atexit = False  # the process's end gives back all that it has
    return memory
