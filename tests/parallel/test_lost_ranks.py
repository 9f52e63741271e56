"""What the others notice when a rank goes away in the middle of things."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.group import RankGroup
from tests.parallel.ranks import DIED, run_ranks
from tests.parallel.test_communicator import TRANSPORTS, each_transport

WIDTH = 512
DEADLINE_S = 60.0
"""What is noticed before it was not noticed by it."""


def call(group: RankGroup, operation: str) -> None:
    axis, num_rows = group.tensor, [64] * group.tensor.size
    x = torch.ones(64, WIDTH)
    match operation:
        case "all_reduce":
            axis.all_reduce(x, site="mlp")
        case "gather":
            axis.gather(x, sizes=num_rows, site="mlp")
        case "all_gather":
            axis.all_gather(x, sizes=num_rows, site="mlp")
        case "all_to_all":
            axis.all_to_all([x] * axis.size, shapes=[x.shape] * axis.size, site="mlp")


def seconds_until_lost(group: RankGroup, operation: str, fate: signal.Signals) -> float:
    """What the other ranks measure when the last one gets a signal."""
    is_last = group.rank == group.tensor.size - 1
    pid = group.tensor.all_reduce(torch.tensor([float(os.getpid() if is_last else 0)]), site="test").item()
    if is_last:
        time.sleep(0.3)
        os.kill(os.getpid(), fate)
    started_s = time.monotonic()
    with pytest.raises(RunnerLostError, match=rf"tensor rank ., {operation} at mlp"):
        call(group, operation)
    duration_s = time.monotonic() - started_s
    if fate is signal.SIGSTOP and group.rank == 0:
        os.kill(int(pid), signal.SIGKILL)
    return duration_s


CASES = [(2, "all_reduce"), (3, "all_reduce"), (2, "gather"), (2, "all_gather"), (3, "all_to_all")]


@each_transport
@pytest.mark.parametrize(("num_ranks", "operation"), CASES)
def test_a_rank_that_dies_is_noticed_before_the_deadline(num_ranks, operation, transport):
    *durations_s, last = run_ranks(
        num_ranks,
        seconds_until_lost,
        operation,
        signal.SIGKILL,
        ranks_without_memory=TRANSPORTS[transport],
        collective_timeout_s=DEADLINE_S,
    )
    assert last == DIED
    assert max(durations_s) < DEADLINE_S


@each_transport
@pytest.mark.parametrize(("num_ranks", "operation"), CASES)
def test_a_rank_that_hangs_is_noticed_at_the_deadline(num_ranks, operation, transport):
    *durations_s, last = run_ranks(
        num_ranks,
        seconds_until_lost,
        operation,
        signal.SIGSTOP,
        ranks_without_memory=TRANSPORTS[transport],
        collective_timeout_s=1.5,
    )
    assert last == DIED
    assert min(durations_s) > 1.0


def lose_one_that_leaves(group: RankGroup, noticed: Path) -> None:
    """The rank that leaves lives on until the other one has noticed."""
    if group.rank > 0:
        group.leave()
        while not noticed.exists():
            time.sleep(0.01)
        return
    with pytest.raises(RunnerLostError, match="rank 1 has gone"):
        call(group, "all_reduce")
    noticed.touch()


def test_a_rank_that_leaves_shared_memory_is_noticed_while_its_process_lives_on(tmp_path):
    run_ranks(2, lose_one_that_leaves, tmp_path / "noticed", collective_timeout_s=DEADLINE_S)
