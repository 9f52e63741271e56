"""Writes into a cache with random contents, and what they must give."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headway.kernels import reference
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import BF16, F16, F32, FP8

CPU = torch.device("cpu")
ROTATION_OPTIONS = ("positions", "cos_sin", "q_norm_weight", "k_norm_weight", "norm_eps")  # what `rotate` takes


def rotation(num_positions: int, rotary_dim: int) -> Tensor:
    angles = torch.randn(num_positions, rotary_dim // 2)
    return torch.cat((angles.cos(), angles.sin()), dim=1)


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


@dataclass(frozen=True)
class RotaryCase:
    """`offset`: numbers by which rows begin behind an address that is a multiple of 16."""

    dtype: torch.dtype = F16
    cache_dtype: torch.dtype = F16
    head_dim: int = 80
    rotary_dim: int = 80
    has_norm: bool = False
    num_heads: int = 5
    num_kv_heads: int = 2
    block_size: int = 8
    index_dtype: torch.dtype = torch.int64
    offset: int = 0
    key_scale: float = 0.5
    value_scale: float = 2.0

    @property
    def tolerance(self) -> float:
        return max(torch.finfo(self.dtype).eps, 1e-5)

    @property
    def cache_tolerance(self) -> float:
        return max(torch.finfo(self.cache_dtype).eps, self.tolerance)


@dataclass
class RotaryStep:
    """The operands of a case: q, k and v are views into one fused row."""

    case: RotaryCase
    device: torch.device = CPU
    slots: tuple[int, ...] = (3, 9, -1, 31, 0, 17, 16)
    options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        case = self.case
        generator = torch.Generator().manual_seed(0)
        shape = (len(self.slots), case.num_heads + 2 * case.num_kv_heads, case.head_dim)
        numbers = torch.randn(shape, generator=generator).to(self.device, case.dtype)
        room = torch.zeros(numbers.numel() + case.offset, dtype=case.dtype, device=self.device)
        self.qkv = room[case.offset :].view(shape).copy_(numbers)
        num_blocks = max(self.slots) // case.block_size + 1
        cache = torch.zeros(num_blocks, case.num_kv_heads, case.block_size, case.head_dim, device=self.device)
        self.caches = [cache.to(case.cache_dtype), cache.to(case.cache_dtype)]
        positions = torch.randint(0, 20, (len(self.slots),), generator=generator)
        norms = torch.randn(2, case.head_dim, generator=generator).to(self.device, case.dtype)
        torch.manual_seed(0)
        self.options = {
            "slot_mapping": torch.tensor(self.slots, dtype=case.index_dtype, device=self.device),
            "positions": positions.to(self.device, case.index_dtype) if case.rotary_dim else None,
            "cos_sin": rotation(20, case.rotary_dim).to(self.device) if case.rotary_dim else None,
            "q_norm_weight": norms[0] if case.has_norm else None,
            "k_norm_weight": norms[1] if case.has_norm else None,
            "norm_eps": 1e-5,
            "key_scale": case.key_scale,
            "value_scale": case.value_scale,
        }

    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, ...]:
        """What a library of its own makes of the step, unchecked."""
        return self.run(kernels.rotate_and_cache)

    def run(self, rotate_and_cache: Any) -> tuple[Tensor, Tensor, Tensor]:
        """The row and both caches behind the step."""
        qkv, (k_cache, v_cache) = self.copy(), [cache.clone() for cache in self.caches]
        rotate_and_cache(*self.heads_of(qkv), k_cache=k_cache, v_cache=v_cache, **self.options)
        return qkv, k_cache, v_cache

    def copy(self) -> Tensor:
        """The row, at the same offset."""
        room = torch.empty(self.qkv.numel() + self.case.offset, dtype=self.case.dtype, device=self.device)
        return room[self.case.offset :].view(self.qkv.shape).copy_(self.qkv)

    def heads_of(self, qkv: Tensor) -> tuple[Tensor, ...]:
        case = self.case
        return qkv.split((case.num_heads, case.num_kv_heads, case.num_kv_heads), dim=1)

    def check(self, *results: Tensor) -> None:
        expected, units = self.run(reference.rotate_and_cache), (self.case.tolerance, self.case.cache_tolerance)
        for result, exact, unit in zip(results, expected, (units[0], units[1], units[1]), strict=True):
            torch.testing.assert_close(result.float(), exact.float(), rtol=unit, atol=unit)


@dataclass(frozen=True)
class CopyStep:
    """Copies among the blocks of [layers, 2, blocks, bytes]; a block is more than a CTA copies at once."""

    memory: Tensor
    pairs: Tensor

    @classmethod
    def of(cls) -> "CopyStep":
        return cls(_random_bytes(3, 2, 5, 10_000), torch.tensor([[0, 3], [4, 1], [0, 2]]))

    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, ...]:
        memory = self.memory.clone()
        kernels.copy_blocks(memory.flatten(0, 1), pairs=self.pairs)
        return (memory,)

    def check(self, *results: Tensor) -> None:
        expected = self.memory.clone()
        reference.copy_blocks(expected, pairs=self.pairs)
        assert torch.equal(results[0], expected)


@dataclass(frozen=True)
class SwapStep:
    """The way out and back of more blocks than one launch takes."""

    memory: Tensor
    host_memory: Tensor
    pairs: Tensor

    @classmethod
    def of(cls) -> "SwapStep":
        pairs = torch.stack((torch.randperm(400)[:300], torch.randperm(400)[:300]), dim=1)
        return cls(_random_bytes(1, 2, 400, 48), _random_bytes(400, 1, 2, 48), pairs)

    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, ...]:
        memory, host_memory = self.memory.clone(), self.host_memory.clone()
        for pairs, is_out in self._ways():
            kernels.swap_blocks(memory.flatten(0, 1), host_memory.flatten(1, 2), pairs, is_out=is_out)
        return memory, host_memory

    def check(self, *results: Tensor) -> None:
        memory, host_memory = self.memory.clone(), self.host_memory.clone()
        for pairs, is_out in self._ways():
            reference.swap_blocks(memory, host_memory, pairs=pairs, is_out=is_out)
        assert torch.equal(results[0], memory)
        assert torch.equal(results[1], host_memory)

    def _ways(self) -> tuple[tuple[Tensor, bool], ...]:
        """Back come the blocks to where others were."""
        back = torch.stack((self.pairs[:, 1], self.pairs[:, 0].roll(1)), dim=1)
        return (self.pairs, True), (back, False)


def _random_bytes(*shape: int) -> Tensor:
    return torch.randint(256, shape, dtype=torch.uint8)


ROTARY_CASES = [
    *(RotaryCase(F16, F16, rotary_dim=rotary_dim, has_norm=norm) for rotary_dim in (0, 32, 80) for norm in (0, 1)),
    RotaryCase(BF16, BF16, head_dim=128, rotary_dim=128, has_norm=True),
    RotaryCase(F32, F32, head_dim=256, rotary_dim=64, has_norm=True),
    RotaryCase(F32, BF16, head_dim=64, rotary_dim=64),
    RotaryCase(F32, F16, has_norm=True, index_dtype=torch.int32),
    RotaryCase(F32, FP8, head_dim=96, rotary_dim=96),
    RotaryCase(BF16, FP8, head_dim=128, rotary_dim=128, has_norm=True, block_size=13),
    RotaryCase(BF16, F16, head_dim=16, rotary_dim=16, block_size=128),
    RotaryCase(F16, FP8, rotary_dim=32),
    RotaryCase(F16, BF16, has_norm=True),
    # more rows than a CTA's lanes take at once, and fewer than a warp's
    RotaryCase(BF16, BF16, head_dim=128, rotary_dim=128, num_heads=64, num_kv_heads=8),
    RotaryCase(BF16, BF16, head_dim=64, rotary_dim=64, has_norm=True, num_heads=1, num_kv_heads=1),
    # what is not read in pieces of 16 bytes
    RotaryCase(BF16, BF16, rotary_dim=20, has_norm=True),
    RotaryCase(F16, F16, head_dim=96, rotary_dim=24),
    RotaryCase(F32, F32, head_dim=24, rotary_dim=6, has_norm=True),
    RotaryCase(F16, FP8, head_dim=48, rotary_dim=46, num_heads=17),
    RotaryCase(BF16, FP8, head_dim=256, rotary_dim=256, has_norm=True, offset=1),
    RotaryCase(F32, BF16, offset=3, has_norm=True),
]
