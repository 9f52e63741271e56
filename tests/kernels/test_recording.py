"""Kernels that are recorded and run again: the same bits as when they are called, on what the tensors hold then."""

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headway.kernels import (
    Arena,
    UnrecordedOperatorError,
    add_rms_norm,
    embed,
    linear,
    pack_linear,
    record,
    rms_norm,
    silu_mul,
)

WIDTH = 48


class Network:
    """Two layers over an embedding, with views between its kernels."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.table = torch.randn(100, WIDTH).to(dtype)
        self.norm = torch.randn(WIDTH).to(dtype)
        self.up = pack_linear(torch.randn(2 * WIDTH, WIDTH).to(dtype))
        self.down = pack_linear(torch.randn(WIDTH, WIDTH).to(dtype))

    def __call__(self, token_ids: Tensor) -> Tensor:
        residual = embed(token_ids, self.table)
        hidden = rms_norm(residual, self.norm, eps=1e-6)
        for _ in range(2):
            heads = linear(hidden, self.up).view(len(hidden), 4, WIDTH // 2)
            first, second = torch.split(heads, [2, 2], dim=1)
            assert first.data_ptr() != second.data_ptr()
            hidden = linear(silu_mul(heads.view(len(hidden), 2 * WIDTH)), self.down)
            hidden = add_rms_norm(hidden, residual, self.norm, eps=1e-6)
        return hidden


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_run_gives_the_bits_of_calls(dtype: torch.dtype) -> None:
    network, arena = Network(dtype), Arena()
    token_ids = torch.zeros(33, dtype=torch.int64)
    recordings = {size: record(lambda size=size: network(token_ids[:size]), arena=arena) for size in (33, 5, 1)}
    for size in (5, 33, 1, 33, 5):
        token_ids.random_(0, 100)
        recordings[size].run()
        assert torch.equal(recordings[size].results[0], network(token_ids[:size]))


def test_nothing_runs_while_it_is_recorded() -> None:
    x, residual, weight = torch.ones(3, 4), torch.ones(3, 4), torch.ones(4)
    recording = record(lambda: add_rms_norm(x, residual, weight, eps=1e-6), arena=Arena())
    assert torch.equal(residual, torch.ones(3, 4))
    recording.run()
    recording.run()
    assert torch.equal(residual, torch.full((3, 4), 3.0))


def test_what_lies_between_results_is_used_again() -> None:
    network, arena = Network(torch.float32), Arena()
    token_ids = torch.zeros(2000, dtype=torch.int64)
    record(lambda: network(token_ids), arena=arena)
    row_bytes = 4 * WIDTH
    assert arena.num_bytes < 16 * len(token_ids) * row_bytes, "two layers write 13 rows for each token, and hold 5"


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: silu_mul(x) + 1,
        lambda x: silu_mul(x).add_(1),
        lambda x: silu_mul(x)[torch.tensor([0])],
        lambda x: silu_mul(x).t().reshape(-1),  # a copy
        lambda x: silu_mul(x) if silu_mul(x)[0, 0].item() else x,
        lambda x: torch.empty_like(silu_mul(x)),
    ],
)
def test_what_else_computes_is_refused(compute: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(4, 6)
    with torch.inference_mode(), pytest.raises(UnrecordedOperatorError, match="aten"):
        record(lambda: compute(x), arena=Arena())
    assert torch.equal(silu_mul(x), silu_mul(x.clone())), "calls are made again"


def test_a_fault_ends_the_run_and_is_told() -> None:
    token_ids, table = torch.zeros(2, dtype=torch.int64), torch.randn(9, 4)
    residual, weight = torch.zeros(2, 4), torch.ones(4)
    recording = record(lambda: add_rms_norm(embed(token_ids, table), residual, weight, eps=1e-6), arena=Arena())
    token_ids[1] = 9
    with pytest.raises(ValueError, match="numbers holds one that is not of a row of table"):
        recording.run()
    assert torch.equal(residual, torch.zeros(2, 4))
    token_ids[1] = 8
    recording.run()
    assert torch.equal(residual, table[[0, 8]])


def test_timed_runs_tell_what_kernels_take() -> None:
    network, token_ids = Network(torch.float32), torch.zeros(300, dtype=torch.int64)
    recording = record(lambda: network(token_ids), arena=Arena())
    recording.run()
    assert set(recording.take_times().values()) == {0}
    recording.is_timed = True
    recording.run()
    times_ns = recording.take_times()
    assert times_ns.keys() == {"headway_embed", "headway_linear", "headway_rms_norm", "headway_silu_mul"}
    assert all(0 < time_ns < 1e9 for time_ns in times_ns.values())
    assert set(recording.take_times().values()) == {0}


def test_other_threads_go_on_calling() -> None:
    x, outs = torch.randn(3, 8), []

    def compute() -> Tensor:
        thread = threading.Thread(target=lambda: outs.append(silu_mul(x)))
        thread.start()
        thread.join()
        return silu_mul(x)

    recording = record(compute, arena=Arena())
    recording.run()
    assert torch.equal(recording.results[0], outs[0])


def test_nothing_is_imported_for_it_that_takes_seconds() -> None:
    code = """
import sys, torch
from headway.kernels import Arena, record, silu_mul
x = torch.randn(2, 4)
record(lambda: silu_mul(x.view(2, 4)), arena=Arena()).run()
print("torch._dynamo" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == "False"
