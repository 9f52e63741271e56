"""Linear layers on the CPU, and the search for their largest outputs: C++ called through ctypes, see `CpuKernels`."""

from ctypes import CDLL
from struct import Struct

import torch
from torch import Tensor

from headway.kernels.library import DTYPE_CODES
from headway.kernels.tape import empty, launch

# The operand structs of csrc/cpu, field by field: q an integer, P a pointer (0: none).
_pack_packing = Struct("2q2P4q").pack
_pack_linear = Struct("2q P Pq 2P P Pq 5q").pack
_pack_sketching = Struct("2q2P q P 2q").pack
_pack_largest = Struct("2q3P q 4P 3q").pack

_ACTIVATION_CODES = {"none": 0, "relu": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4}  # as in csrc/cpu/activate.h


class LinearKernels:
    """The linear kernels of one variant of the library."""

    def __init__(self, library: CDLL) -> None:
        self._packed_size = library.headway_packed_size
        self._pack = library.headway_pack_linear
        self._linear = library.headway_linear
        self._sketch_size = library.headway_sketch_size
        self._sketch = library.headway_sketch_linear
        self._find_largest = library.headway_find_largest

    def pack_linear(self, weight: Tensor, *, is_gated: bool) -> Tensor:
        out_features, in_features = weight.shape
        dtype = DTYPE_CODES[weight.dtype]
        panels = torch.empty(self._packed_size(dtype, in_features, out_features, is_gated), dtype=weight.dtype)
        self._pack(
            _pack_packing(
                torch.get_num_threads(),
                dtype,
                panels.data_ptr(),
                weight.data_ptr(),
                weight.stride(0),
                in_features,
                out_features,
                is_gated,
            )
        )
        return panels

    def linear(
        self,
        x: Tensor,
        *,
        panels: Tensor,
        scales: Tensor | None,
        out_features: int,
        is_gated: bool,
        bias: Tensor | None,
        activation: str,
        residual: Tensor | None,
    ) -> Tensor:
        num_rows, in_features = x.shape
        out = empty((num_rows, out_features // 2 if is_gated else out_features), x.dtype)
        launch(
            self._linear,
            _pack_linear(
                torch.get_num_threads(),
                DTYPE_CODES[x.dtype],
                out.data_ptr(),
                x.data_ptr(),
                x.stride(0),
                panels.data_ptr(),
                0 if scales is None else scales.data_ptr(),
                0 if bias is None else bias.data_ptr(),
                0 if residual is None else residual.data_ptr(),
                0 if residual is None else residual.stride(0),
                num_rows,
                in_features,
                out_features,
                is_gated,
                _ACTIVATION_CODES[activation],
            ),
        )
        return out

    def sketch_bytes(self, *, in_features: int, out_features: int) -> int:
        num_bytes: int = self._sketch_size(in_features, out_features)
        return num_bytes

    def sketch_linear(self, weight: Tensor, *, scales: Tensor | None) -> Tensor | None:
        out_features, in_features = weight.shape
        num_bytes = self.sketch_bytes(in_features=in_features, out_features=out_features)
        if not num_bytes:
            return None
        sketch = torch.empty(num_bytes, dtype=torch.int8)
        self._sketch(
            _pack_sketching(
                torch.get_num_threads(),
                DTYPE_CODES[weight.dtype],
                sketch.data_ptr(),
                weight.data_ptr(),
                weight.stride(0),
                0 if scales is None else scales.data_ptr(),
                in_features,
                out_features,
            )
        )
        return sketch

    def find_largest(
        self,
        x: Tensor,
        *,
        panels: Tensor,
        scales: Tensor | None,
        sketch: Tensor | None,
        tally: Tensor | None,
        out_features: int,
    ) -> tuple[Tensor, Tensor]:
        num_rows, in_features = x.shape
        values, columns = empty((num_rows,), torch.float32), empty((num_rows,), torch.int64)
        launch(
            self._find_largest,
            _pack_largest(
                torch.get_num_threads(),
                DTYPE_CODES[x.dtype],
                columns.data_ptr(),
                values.data_ptr(),
                x.data_ptr(),
                x.stride(0),
                panels.data_ptr(),
                0 if scales is None else scales.data_ptr(),
                0 if sketch is None else sketch.data_ptr(),
                0 if tally is None else tally.data_ptr(),
                num_rows,
                in_features,
                out_features,
            ),
        )
        return values, columns
