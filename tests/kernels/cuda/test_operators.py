"""The kernels as torch operators: their schemas and fakes hold, and bad operands are named."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from headway.kernels.cuda import decode_attention, operators
from headway.kernels.cuda.kernels import CudaKernels
from headway.kernels.cuda.operands import check_extent
from tests.kernels.cuda.cases import FP8, DecodeCase, DecodeStep
from tests.kernels.cuda.prefill_cases import PrefillCase, PrefillStep

CHECKS = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_dynamic")


def operands_of(step: DecodeStep) -> dict[str, Any]:
    return {
        "q": step.q,
        "k_cache": step.k_cache,
        "v_cache": step.v_cache,
        "block_tables": step.block_tables,
        "table": step.table,
        "scale": 0.125,
    }


def test_schemas_and_fakes_hold(host: CudaKernels) -> None:
    step = DecodeStep(DecodeCase())
    step.table.load(step.rows)
    table, out, lse = step.table, torch.empty(step.q.shape), torch.empty(step.q.shape[:2])
    caches = step.k_cache, step.v_cache
    decoded = (step.q, *caches, step.block_tables, table.work, 4, table.partials, out, lse, None, 0.125, 0.0, 1.0, 1.0)
    torch.library.opcheck(operators.decode_attention, decoded, test_utils=CHECKS)
    torch.library.opcheck(operators.merge_partials, (table.partials, table.starts, out, lse), test_utils=CHECKS)
    kv = torch.randn(3, 2, 64, dtype=torch.float16)
    slots = torch.arange(3)
    cached = (step.q, kv, kv.clone(), *caches, slots, None, None, None, None, 1e-5, 1.0, 1.0)
    torch.library.opcheck(operators.rotate_and_cache, cached, test_utils=CHECKS)
    pairs = torch.tensor([[0, 1]])
    planes = torch.zeros(2, 3, 16, dtype=torch.uint8)
    torch.library.opcheck(operators.copy_blocks, (planes, pairs), test_utils=CHECKS)


def test_the_schemas_and_fakes_of_the_others_hold(host: CudaKernels) -> None:
    given = PrefillStep(PrefillCase(query_lens=(3,), seq_lens=(5,))).operands
    prefilled = (
        *(given[name] for name in ("q", "k_cache", "v_cache", "block_tables", "seq_lens", "query_start")),
        None,
    )
    out, lse = torch.empty(given["q"].shape), torch.empty(given["q"].shape[:2])
    options = (None, 0, 0.125, 0.0, 1.0, 1.0)
    torch.library.opcheck(operators.prefill_attention, (*prefilled, out, lse, *options), test_utils=CHECKS)
    q, rotation = torch.randn(3, 4, 64), torch.randn(9, 64)
    torch.library.opcheck(operators.rotate, (q, q + 1, torch.arange(3), rotation, None, None, 1e-5), test_utils=CHECKS)
    planes, host_planes = torch.zeros(2, 3, 16, dtype=torch.uint8), torch.ones(5, 2, 16, dtype=torch.uint8)
    swapped = (planes, host_planes, torch.tensor([[4, 1]]))
    torch.library.opcheck(operators.swap_blocks, swapped, {"is_out": False}, test_utils=CHECKS)
    x = torch.randn(2, 16)
    normalised = (x, x + 1, torch.ones(16), torch.empty(2, 16), 1e-5)
    torch.library.opcheck(operators.rms_norm, normalised, test_utils=CHECKS)
    torch.library.opcheck(operators.silu_mul, (x, torch.empty(2, 8)), test_utils=CHECKS)
    ones = torch.ones(2)
    columns = (ones.long(), ones.long(), ones, ones.long(), ones.double(), ones, torch.empty(2, dtype=torch.int64))
    torch.library.opcheck(operators.sample_tokens, (x, *columns), test_utils=CHECKS)


def test_on_a_gpu_without_content_they_run_too() -> None:
    """What `torch.compile` does before there is a kernel, or a GPU."""
    with FakeTensorMode():
        partials = torch.empty(4, 2, 8, 65, device="cuda")
        out = torch.empty(2, 8, 64, device="cuda")
        assert operators.merge_partials(partials, None, out, None) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.zeros(3, 4, 64, dtype=torch.float64)}, "q must be float32, bfloat16 or float16; it is float64"),
        ({"q": torch.zeros(3, 4, 72)}, "q must be of a head_dim of a multiple of 16 up to 256"),
        ({"q": torch.zeros(3, 5, 64)}, "q must have a multiple of 2 heads, as k_cache has; it has 5"),
        ({"q": torch.zeros(3, 6, 64)}, "table must be for 6 heads of 64 on cpu"),
        ({"q": torch.zeros(9, 4, 64)}, "q must have at most 3 rows, as the table has; it has 9"),
        (
            {"q": torch.zeros(3 * 256 + 1)[1:].view(3, 4, 64)},
            "q must be of rows and heads that begin at multiples of 16",
        ),
        ({"k_cache": torch.zeros(9, 2, 16, 64)}, "k_cache must be bfloat16, float16 or float8_e4m3fn on cpu"),
        ({"k_cache": torch.zeros(9, 2, 64, 16).mT.to(FP8)}, "k_cache must be contiguous within a block"),
        ({"k_cache": torch.zeros(9, 2, 4, 64).half()}, "k_cache must be of blocks of 8 to 128 tokens"),
        ({"v_cache": torch.zeros(9, 2, 16, 64).to(FP8)}, "v_cache must be float16"),
        ({"block_tables": torch.zeros(3, 7, dtype=torch.int64)}, "block_tables must be an int32 matrix on cpu"),
        ({"soft_cap": -1.0}, "soft_cap must be a positive number; it is -1.0"),
        ({"value_scale": float("nan")}, "value_scale must be a positive number; it is nan"),
        ({"alibi_slopes": torch.zeros(3)}, r"alibi_slopes must be float32 \[4\]"),
        ({"out": torch.zeros(3, 4, 64, dtype=torch.bfloat16)}, "out must be float16"),
        ({"lse": torch.zeros(3, 4, 1)}, r"lse must be float32 \[3, 4\]"),
    ],
)
def test_bad_operands_are_named(host: CudaKernels, changes: dict[str, Any], message: str) -> None:
    if "k_cache" in changes:
        changes = {**changes, "v_cache": changes["k_cache"]}
    with pytest.raises(ValueError, match=message):
        decode_attention(**{**operands_of(DecodeStep(DecodeCase())), **changes})


def test_a_cache_too_far_apart_is_named() -> None:
    apart = torch.empty_strided((3, 2, 16, 64), (1 << 34, 1024, 64, 1), dtype=torch.float16, device="meta")
    check_extent("v_cache", apart[:2])
    with pytest.raises(ValueError, match=r"v_cache must be of blocks within 64 GiB; they take 64\.0; it is float16"):
        check_extent("v_cache", apart)
