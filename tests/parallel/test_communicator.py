"""Collectives between real processes."""

import os
import signal
import time
from itertools import product

import pytest
import torch
from torch import Tensor

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.traffic import TrafficKey
from tests.parallel.ranks import DIED, run_ranks

SHAPES = [(1, 8), (5, 33), (64, 512), (0, 8)]
DTYPES = [torch.float32, torch.bfloat16]


def contribution(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(shape, generator=generator).to(dtype)


def add_up(group: RankGroup) -> list[Tensor]:
    with torch.inference_mode():
        mine = [contribution(group.rank, *case) for case in product(SHAPES, DTYPES)]
        return [group.tensor.all_reduce(x, site="test").clone() for x in mine]


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_every_rank_has_the_same_sum_bit_for_bit(num_ranks):
    sums = run_ranks(num_ranks, add_up)
    for index, (shape, dtype) in enumerate(product(SHAPES, DTYPES)):
        parts = [contribution(rank, shape, dtype) for rank in range(num_ranks)]
        expected = torch.stack(parts).float().sum(dim=0)
        tolerance = 1e-5 if dtype is torch.float32 else 0.05
        torch.testing.assert_close(sums[0][index].float(), expected, atol=tolerance, rtol=tolerance)
        assert all(torch.equal(found[index], sums[0][index]) for found in sums)


def collect(group: RankGroup) -> list[Tensor] | None:
    return group.tensor.gather(contribution(group.rank, (3, 7), torch.float32), site="test")


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_the_first_rank_gathers_what_all_have_in_order(num_ranks):
    leaders, *others = run_ranks(num_ranks, collect)
    for rank, found in enumerate(leaders):
        assert torch.equal(found, contribution(rank, (3, 7), torch.float32))
    assert others == [None] * (num_ranks - 1)


def count(group: RankGroup) -> dict[TrafficKey, tuple[int, int]]:
    for num_rows in (4, 6):
        group.tensor.all_reduce(torch.ones(num_rows, 12), site="mlp")
    group.tensor.all_reduce(torch.ones(2, 12, dtype=torch.bfloat16), site="attention")
    group.tensor.gather(torch.ones(5, 3), site="logits")
    return {key: (count.num_calls, count.num_bytes) for key, count in group.traffic.totals().items()}


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_counters_tell_what_a_ring_sends(num_ranks):
    def ring(num_bytes: int) -> int:
        return 2 * (num_ranks - 1) * num_bytes // num_ranks

    for rank, counts in enumerate(run_ranks(num_ranks, count)):
        assert counts == {
            TrafficKey("tensor", "all_reduce", "mlp"): (2, ring(4 * 12 * 4) + ring(6 * 12 * 4)),
            TrafficKey("tensor", "all_reduce", "attention"): (1, ring(2 * 12 * 2)),
            TrafficKey("tensor", "gather", "logits"): (1, 5 * 3 * 4 if rank > 0 else 0),
        }


def seconds_until_lost(group: RankGroup, fate: signal.Signals) -> float:
    """What the other ranks measure when the last one gets a signal."""
    is_last = group.rank == group.tensor.size - 1
    pid = group.tensor.all_reduce(torch.tensor([os.getpid() if is_last else 0]), site="test").item()
    if is_last:
        time.sleep(0.3)
        os.kill(os.getpid(), fate)
    started_s = time.monotonic()
    with pytest.raises(RunnerLostError, match=r"tensor rank ., all_reduce at mlp"):
        group.tensor.all_reduce(torch.ones(64, 512), site="mlp")
    duration_s = time.monotonic() - started_s
    if fate is signal.SIGSTOP and group.rank == 0:
        os.kill(int(pid), signal.SIGKILL)
    return duration_s


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_a_rank_that_dies_is_noticed_within_a_second(num_ranks):
    *durations_s, last = run_ranks(num_ranks, seconds_until_lost, signal.SIGKILL)
    assert last == DIED
    assert max(durations_s) < 1.3


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_a_rank_that_hangs_is_noticed_at_the_deadline(num_ranks):
    *durations_s, last = run_ranks(num_ranks, seconds_until_lost, signal.SIGSTOP, collective_timeout_s=1.5)
    assert last == DIED
    assert min(durations_s) > 1.0
    assert max(durations_s) < 3.0
