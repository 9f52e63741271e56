"""Calls of the compiled row-wise kernels. Operands were checked before."""

from struct import Struct

from torch import Tensor

from headway.kernels.cuda.library import DTYPE_CODES, CudaLibrary, address_of, stream_of

# The operand structs of csrc/cuda, field by field: q an integer, P a pointer (0: none), d a double.
_pack_norm = Struct("q P Pq Pq P 2q d q").pack
_pack_gate = Struct("q P Pq 2q q").pack
_pack_sample = Struct("P Pq 2q 2P P P P P q").pack


class RowCalls(CudaLibrary):
    """Norms, activations, and sampling of tokens."""

    def rms_norm(self, x: Tensor, residual: Tensor | None, weight: Tensor, out: Tensor, eps: float) -> None:
        problem = _pack_norm(
            DTYPE_CODES[x.dtype],
            out.data_ptr(),
            x.data_ptr(),
            x.stride(0),
            address_of(residual),
            0 if residual is None else residual.stride(0),
            weight.data_ptr(),
            *x.shape,
            eps,
            stream_of(x),
        )
        self.launch("rms_norm", problem, like=x)

    def silu_mul(self, gate_up: Tensor, out: Tensor) -> None:
        problem = _pack_gate(
            DTYPE_CODES[gate_up.dtype],
            out.data_ptr(),
            gate_up.data_ptr(),
            gate_up.stride(0),
            *out.shape,
            stream_of(gate_up),
        )
        self.launch("silu_mul", problem, like=gate_up)

    def sample_tokens(
        self,
        logits: Tensor,
        seeds: Tensor,
        positions: Tensor,
        temperatures: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        min_p: Tensor,
        out: Tensor,
    ) -> None:
        problem = _pack_sample(
            out.data_ptr(),
            logits.data_ptr(),
            logits.stride(0),
            *logits.shape,
            seeds.data_ptr(),
            positions.data_ptr(),
            temperatures.data_ptr(),
            top_k.data_ptr(),
            top_p.data_ptr(),
            min_p.data_ptr(),
            stream_of(logits),
        )
        self.launch("sample_tokens", problem, like=logits)
