"""A compiled library of the CUDA kernels behind ctypes: for GPUs, or for the CPU. Operands were checked before."""

from contextlib import nullcontext
from ctypes import CDLL, byref, c_char_p, c_int, c_int64
from pathlib import Path

import torch
from torch import Tensor

DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float8_e4m3fn: 3}  # csrc/cuda/device.h
_UNSUPPORTED = -2


def address_of(tensor: Tensor | None) -> int:
    """The address of a tensor's data; 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


def stream_of(tensor: Tensor) -> int:
    """The current stream of the tensor's GPU, as CUDA's handle; 0 on the CPU."""
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0


class CudaLibrary:
    """Loads a library and calls its entry points, each with one struct of pointers, sizes, strides and a stream."""

    def __init__(self, path: Path) -> None:
        self._library = CDLL(str(path))
        self._library.headway_error_text.argtypes = (c_int,)
        self._library.headway_error_text.restype = c_char_p
        self._library.headway_build_stamp.restype = c_char_p

    @property
    def build_stamp(self) -> str:
        return str(self._library.headway_build_stamp().decode())

    def set_schedule(self, schedule: int) -> None:
        """Sets how threads take turns on the CPU: 0 in order, 1 backwards, others seed a random order."""
        self._library.headway_set_schedule(schedule)

    def launch(self, name: str, problem: bytes, *, like: Tensor) -> None:
        """Calls `headway_NAME` with the device of `like` current.

        Raises:
            RuntimeError: the launch failed, or the kernel was not compiled for such operands.
        """
        self._call(name, problem, like=like)

    def ask(self, name: str, shape: bytes, *, like: Tensor) -> int:
        """Returns the answer of `headway_NAME`, with the device of `like` current.

        Raises:
            RuntimeError: the device is none that the library was compiled for.
        """
        answer = c_int64()
        self._call(name, shape, byref(answer), like=like)
        return answer.value

    def _call(self, name: str, *arguments: object, like: Tensor) -> None:
        with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
            code = self._library[f"headway_{name}"](*arguments)
        if code == _UNSUPPORTED:
            raise RuntimeError(f"{name} was not compiled for these dtypes")
        if code:
            raise RuntimeError(f"{name} failed: {self._library.headway_error_text(code).decode()}")
