"""Per-head norm, rotation, and the write into the paged cache."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from headway.kernels import reference, rotate_and_cache
from headway.kernels.cpu import CpuKernels


@dataclass(frozen=True)
class Case:
    num_tokens: int = 13
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 64
    rotary_dim: int | None = 64
    norm: bool = False
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    cache_dtype: torch.dtype = torch.float32
    index_dtype: torch.dtype = torch.int64

    def operands(self) -> dict[str, Any]:
        """q, k and v are views into one fused row; the slots are scattered over the cache."""
        num_blocks = self.num_tokens // self.block_size + 3
        num_row_heads = self.num_heads + 2 * self.num_kv_heads
        rows = torch.randn(self.num_tokens, num_row_heads, self.head_dim).to(self.dtype)
        first_k, first_v = self.num_heads, self.num_heads + self.num_kv_heads
        cache_shape = (num_blocks, self.num_kv_heads, self.block_size, self.head_dim)
        slots = torch.randperm(num_blocks * self.block_size)[: self.num_tokens]
        weight = (torch.randn(self.head_dim)).to(self.dtype)
        return {
            "q": rows[:, :first_k],
            "k": rows[:, first_k:first_v],
            "v": rows[:, first_v:],
            "k_cache": torch.randn(cache_shape).mT.contiguous().mT.to(self.cache_dtype),
            "v_cache": torch.randn(cache_shape).to(self.cache_dtype),
            "slot_mapping": slots.to(self.index_dtype),
            "positions": torch.randint(0, 50, (self.num_tokens,)).to(self.index_dtype),
            "cos_sin": None if self.rotary_dim is None else torch.randn(50, self.rotary_dim),
            "q_norm_weight": weight if self.norm else None,
            "k_norm_weight": weight.flip(0) if self.norm else None,
            "norm_eps": 1e-6,
        }


def copied(operands: dict[str, Any]) -> dict[str, Any]:
    return {name: x.clone() if isinstance(x, Tensor) else x for name, x in operands.items()}


CASES = [
    Case(),
    Case(num_tokens=0),
    Case(num_tokens=1, rotary_dim=None),
    Case(num_tokens=200, index_dtype=torch.int32),
    Case(norm=True),
    Case(norm=True, rotary_dim=None, num_heads=2),
    Case(head_dim=80, rotary_dim=32, block_size=13),
    Case(head_dim=72, rotary_dim=24, norm=True),
    Case(head_dim=8, rotary_dim=6, num_kv_heads=1),
    Case(cache_dtype=torch.bfloat16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_reference(kernels: CpuKernels, case: Case) -> None:
    ours = case.operands()
    expected = copied(ours)
    kernels.rotate_and_cache(**ours)
    reference.rotate_and_cache(**expected)
    for name in ("q", "k", "v", "k_cache", "v_cache"):
        # One rounding of bfloat16 may fall the other way when float32 differs in its last bit.
        rtol = 2**-8 if ours[name].dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(ours[name], expected[name], rtol=rtol, atol=2e-6)


@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_rows_are_cached_as_rounded(kernels: CpuKernels, cache_dtype: torch.dtype) -> None:
    ours = Case(dtype=torch.bfloat16, cache_dtype=cache_dtype, norm=True).operands()
    expected = copied(ours)
    kernels.rotate_and_cache(**ours)
    reference.rotate_and_cache(**expected)
    torch.testing.assert_close(ours["q"], expected["q"], rtol=2**-7, atol=1e-5)
    slots = ours["slot_mapping"]
    cached = ours["k_cache"][slots // 16, :, slots % 16]
    assert torch.equal(cached, ours["k"].to(cache_dtype))


def test_rotation_is_that_of_transformers(kernels: CpuKernels) -> None:
    operands = Case().operands()
    frequencies = 10_000.0 ** (-torch.arange(0, 64, 2) / 64)
    angles = torch.arange(50)[:, None] * frequencies
    operands["cos_sin"] = torch.cat((angles.cos(), angles.sin()), dim=1)
    doubled = torch.cat((angles, angles), dim=1)[operands["positions"]]
    q, k = (x.transpose(0, 1).clone()[None] for x in (operands["q"], operands["k"]))
    expected_q, expected_k = apply_rotary_pos_emb(q, k, doubled.cos()[None], doubled.sin()[None])
    kernels.rotate_and_cache(**operands)
    torch.testing.assert_close(operands["q"], expected_q[0].transpose(0, 1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(operands["k"], expected_k[0].transpose(0, 1), rtol=1e-5, atol=1e-6)


def test_only_the_named_slots_are_written(kernels: CpuKernels) -> None:
    operands = replace(CASES[0], num_tokens=3).operands()
    before = operands["k_cache"].clone()
    kernels.rotate_and_cache(**operands)
    changed = (operands["k_cache"] != before).any(dim=3).any(dim=1).flatten().nonzero()[:, 0]
    assert sorted(changed.tolist()) == sorted(operands["slot_mapping"].tolist())


def test_a_token_without_a_slot_is_rotated_and_not_cached(kernels: CpuKernels) -> None:
    operands = replace(CASES[4], num_tokens=40).operands()
    is_here = torch.rand(40) < 0.5
    expected = copied(operands)
    reference.rotate_and_cache(**expected)
    slots = operands["slot_mapping"][~is_here]
    for name in ("k_cache", "v_cache"):
        expected[name][slots // 16, :, slots % 16] = operands[name][slots // 16, :, slots % 16]
    operands["slot_mapping"][~is_here] = -1
    by_reference = copied(operands)
    reference.rotate_and_cache(**by_reference)
    kernels.rotate_and_cache(**operands)
    for name in ("q", "k", "v", "k_cache", "v_cache"):
        assert torch.equal(by_reference[name], expected[name])
        torch.testing.assert_close(operands[name], expected[name], rtol=1e-5, atol=2e-6)


def test_strided_blocks_are_written_in_place(kernels: CpuKernels) -> None:
    operands = Case().operands()
    num_blocks, num_kv_heads, block_size, head_dim = operands["v_cache"].shape
    pool = torch.randn(num_blocks, 2, num_kv_heads, block_size * head_dim)
    operands["k_cache"] = pool[:, 0].unflatten(2, (head_dim, block_size)).mT
    operands["v_cache"] = pool[:, 1].unflatten(2, (block_size, head_dim))
    expected = copied(operands)
    rotate_and_cache(**operands)
    reference.rotate_and_cache(**expected)
    for name in ("k_cache", "v_cache"):
        torch.testing.assert_close(operands[name], expected[name], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "value"), [("slot_mapping", -2), ("slot_mapping", 48), ("positions", 50)])
def test_an_impossible_index_is_refused_before_anything_is_written(name: str, value: int) -> None:
    operands = Case().operands()
    operands[name][7] = value
    before = copied(operands)
    with pytest.raises(ValueError, match=f"^{name} holds"):
        rotate_and_cache(**operands)
    assert all(torch.equal(operands[key], before[key]) for key in ("q", "k", "k_cache", "v_cache"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("q", torch.zeros(13, 384)),
        ("q", torch.zeros(13, 6, 128)[..., ::2]),
        ("q", torch.zeros(1, 6, 64).expand(13, 6, 64)),
        ("k", torch.zeros(13, 3, 64)),
        ("k", torch.zeros(13, 2, 64, dtype=torch.bfloat16)),
        ("v", torch.zeros(12, 2, 64)),
        ("k_cache", torch.zeros(3, 2, 16, 32)),
        ("k_cache", torch.zeros(3, 2, 16, 64)),
        ("k_cache", torch.zeros(3, 2, 16, 64, dtype=torch.float64)),
        ("v_cache", torch.zeros(3, 2, 16, 64, dtype=torch.bfloat16)),
        ("v_cache", torch.zeros(3, 16, 2, 64).transpose(1, 2)),
        ("slot_mapping", torch.zeros(13)),
        ("slot_mapping", torch.zeros(12, dtype=torch.int64)),
        ("positions", torch.zeros(14, dtype=torch.int64)),
        ("positions", None),
        ("cos_sin", torch.zeros(50, 66)),
        ("cos_sin", torch.zeros(50, 7)),
        ("cos_sin", torch.zeros(50, 64, dtype=torch.bfloat16)),
        ("q_norm_weight", torch.zeros(63)),
        ("k_norm_weight", torch.zeros(64, dtype=torch.bfloat16)),
    ],
)
def test_a_bad_operand_is_named(name: str, value: Tensor | None) -> None:
    with pytest.raises(ValueError, match=f"^{name} must"):
        rotate_and_cache(**{**Case().operands(), name: value})
