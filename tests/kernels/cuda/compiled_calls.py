"""A call of every public function, which `torch.compile` has to take whole."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headway.core.request import SamplingParams
from headway.kernels import cuda
from tests.kernels.cuda.cache_steps import ROTATION_OPTIONS, RotaryCase, RotaryStep
from tests.kernels.cuda.cases import DecodeCase, DecodeStep
from tests.kernels.cuda.prefill_cases import PrefillCase, PrefillStep
from tests.kernels.cuda.row_steps import columns_of
from tests.kernels.test_merge_partials import random_partials


@dataclass(frozen=True)
class Call:
    function: Callable[..., Tensor | None]
    operands: tuple[Any, ...] = ()
    options: dict[str, Any] | None = None

    def __str__(self) -> str:
        return self.function.__name__

    def results_of(self, function: Callable[..., Tensor | None]) -> list[Tensor]:
        """What the function returns, and what it leaves in its operands."""
        operands, options = pytree.tree_map_only(Tensor, _cloned, (self.operands, self.options or {}))
        result = function(*operands, **options)
        left = [x for x in pytree.tree_leaves((operands, options)) if isinstance(x, Tensor)]
        return left if result is None else [result, *left]


def _cloned(x: Tensor) -> Tensor:
    return x.clone().pin_memory() if x.is_cpu and x.is_pinned() else x.clone()


def _attention_calls(device: torch.device) -> list[Call]:
    step = DecodeStep(DecodeCase(lengths=(70, 5)), device)
    step.table.load(step.rows)
    shared = {"k_cache": step.k_cache, "v_cache": step.v_cache, "block_tables": step.block_tables, "scale": 0.125}
    results = {"out": torch.zeros(2, 4, 64, device=device), "lse": torch.zeros(2, 4, device=device)}
    prefilled = PrefillStep(PrefillCase(query_lens=(3, 1), seq_lens=(5, 9)), device).operands
    return [
        Call(cuda.decode_attention, (step.q,), {**shared, "table": step.table}),
        Call(cuda.decode_attention, (step.q,), {**shared, "table": step.table, **results}),
        Call(cuda.prefill_attention, (), prefilled),
        Call(cuda.merge_partials, (random_partials(3).to(device),), {"dtype": torch.bfloat16}),
    ]


def _cache_calls(device: torch.device) -> list[Call]:
    step = RotaryStep(RotaryCase(has_norm=True), device)
    caches = dict(zip(("k_cache", "v_cache"), step.caches, strict=True))
    q, k, v = (heads.clone() for heads in step.heads_of(step.qkv))
    memory, host_memory = torch.randn(2, 2, 3, 8, device=device), torch.zeros(4, 2, 2, 8)
    if device.type == "cuda":
        host_memory = host_memory.pin_memory()
    pairs = torch.tensor([[0, 2]])
    return [
        Call(cuda.rotate_and_cache, (q, k, v), {**caches, **step.options}),
        Call(cuda.rotate, (q, k), {name: step.options[name] for name in ROTATION_OPTIONS}),
        Call(cuda.copy_blocks, (memory,), {"pairs": pairs.to(device)}),
        Call(cuda.swap_blocks, (memory, host_memory), {"pairs": pairs, "is_out": True}),
    ]


def _row_calls(device: torch.device) -> list[Call]:
    x, weight = torch.randn(3, 64, device=device), torch.randn(64, device=device)
    params = [SamplingParams(top_k=5, top_p=0.9, seed=seed) for seed in range(3)]
    columns = columns_of(params, [0, 1, 2])
    return [
        Call(cuda.rms_norm, (x, weight), {"eps": 1e-5}),
        Call(cuda.add_rms_norm, (x, x + 1, weight), {"eps": 1e-5}),
        Call(cuda.silu_mul, (x,)),
        Call(cuda.sample_tokens, (x,), {name: column.to(device) for name, column in columns.items()}),
    ]


def calls_on(device: torch.device) -> list[Call]:
    return [*_attention_calls(device), *_cache_calls(device), *_row_calls(device)]


def check_compiled(call: Call) -> None:
    """What it gives when it is compiled, as one graph, is what it gives by itself."""
    torch._dynamo.reset()
    compiled = torch.compile(call.function, backend="aot_eager", fullgraph=True)
    for result, expected in zip(call.results_of(compiled), call.results_of(call.function), strict=True):
        assert torch.equal(result.nan_to_num(), expected.nan_to_num())
