"""The line between two stages, between real processes."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from headway.core.parallel_config import ParallelConfig
from headway.engine.batch import RunnerLostError
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.stage_link import StageLink
from tests.parallel.ranks import DIED, run_ranks

PAIR = ParallelConfig(pp=2)
THREE = ParallelConfig(pp=3)
SHAPES = [(1, 64), (2000, 512), (3, 64), (3, 64)]


def expect(link: StageLink, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
    link.expect(shape, dtype=dtype, device=torch.device("cpu"))


def numbered(number: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(number, number + torch.Size(SHAPES[number]).numel(), dtype=dtype).view(SHAPES[number])


def ends_in(group: RankGroup) -> tuple[bool, bool]:
    return group.previous is None, group.next is None


def test_rank_0_is_in_the_last_stage_and_the_last_rank_in_the_first():
    assert run_ranks(THREE, ends_in) == [(False, True), (False, False), (True, False)]
    assert run_ranks(ParallelConfig(tp=2), ends_in) == [(True, True)] * 2


def send_all(group: RankGroup, dtype: torch.dtype) -> tuple[int, int] | None:
    """(calls, bytes) that were counted."""
    if group.previous is not None:
        for number in (0, 1):
            expect(group.previous, SHAPES[number], dtype)
        for number in range(len(SHAPES)):
            if number > 1:
                expect(group.previous, SHAPES[number], dtype)
            assert torch.equal(group.previous.receive(), numbered(number, dtype))
        dist.barrier(group=group.control)
        return None
    assert group.next is not None
    for number in range(len(SHAPES)):
        group.next.send(numbered(number, dtype))
    dist.barrier(group=group.control)  # lest the line ends before the other has everything
    (count,) = group.traffic.totals().values()
    return count.num_calls, count.num_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tensors_arrive_whole_and_in_order_and_their_bytes_are_counted(dtype):
    num_bytes = sum(torch.Size(shape).numel() for shape in SHAPES) * dtype.itemsize
    assert run_ranks(PAIR, send_all, dtype) == [None, (len(SHAPES), num_bytes)]


def say(group: RankGroup, other: int) -> None:
    dist.send(torch.zeros(1), group=group.control, group_dst=other)


def hear(group: RankGroup, other: int) -> None:
    dist.recv(torch.zeros(1), group=group.control, group_src=other)


def send_before_it_is_wanted(group: RankGroup) -> None:
    """The other rank wants nothing before the sender has gone on."""
    if group.next is not None:
        for number in (0, 1):
            group.next.send(numbered(number))
        say(group, 0)
        return
    assert group.previous is not None
    hear(group, 1)
    for number in (0, 1):
        expect(group.previous, SHAPES[number])
        assert torch.equal(group.previous.receive(), numbered(number))


def test_a_sender_goes_on_while_the_other_rank_is_busy():
    run_ranks(PAIR, send_before_it_is_wanted)


def idle(group: RankGroup) -> None:
    """Sends nothing for longer than the deadline, with a receive under way, and then something."""
    if group.next is not None:
        time.sleep(1.0)
        group.next.send(numbered(0))
        return
    assert group.previous is not None
    expect(group.previous, SHAPES[0])
    time.sleep(0.8)
    assert torch.equal(group.previous.receive(), numbered(0))


def test_nothing_may_come_for_longer_than_the_deadline_while_nobody_waits():
    run_ranks(PAIR, idle, collective_timeout_s=0.5)


def wait_in_vain(group: RankGroup, waiting_rank: int) -> None:
    if group.rank != waiting_rank:
        hear(group, waiting_rank)
        return
    use = take if group.next is None else send_often
    link = group.next or group.previous
    assert link is not None
    with pytest.raises(RunnerLostError, match=r"pipeline, (receive|send): .*imed out"):
        use(link)
    say(group, 1 - waiting_rank)


@pytest.mark.parametrize("waiting_rank", [0, 1])
def test_who_waits_longer_than_the_deadline_gives_up(waiting_rank):
    run_ranks(PAIR, wait_in_vain, waiting_rank, collective_timeout_s=0.5)


def send_often(link: StageLink) -> None:
    for _ in range(4):
        link.send(numbered(1))


def take(link: StageLink) -> None:
    expect(link, SHAPES[1])
    link.receive()


def lose_the_other(group: RankGroup, victim: int) -> None:
    """With a deadline that the test would not live to see."""
    link = group.next or group.previous
    assert link is not None
    if group.rank == victim:
        hear(group, 1 - victim)
        os.kill(os.getpid(), signal.SIGKILL)
    say(group, victim)
    use = send_often if group.next is not None else take
    with pytest.raises(RunnerLostError):
        use(link)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_neighbour_is_noticed_without_a_deadline(victim):
    results = run_ranks(PAIR, lose_the_other, victim, collective_timeout_s=1000.0, timeout_s=30.0)
    assert results == [DIED, None] if victim == 0 else [None, DIED]


def test_a_lone_rank_has_no_links():
    assert ends_in(RankGroup.single()) == (True, True)
