"""Where ranks meet: between real processes, and within one."""

import time
from datetime import timedelta

import pytest
import torch

from headway.core.errors import CancelledError, FailedPreconditionError, UnavailableError
from headway.core.parallel_config import ParallelConfig
from headway.runner.parallel import group as group_module
from headway.runner.parallel import rendezvous as rendezvous_module
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.rendezvous import Rendezvous
from tests.parallel.ranks import run_ranks


def test_its_address_leads_to_it():
    leaders = Rendezvous.host("127.0.0.1")
    ranks = Rendezvous.at(str(leaders))
    assert str(ranks) == str(leaders)
    assert ranks.epoch == leaders.epoch
    ranks.report_loaded(1)
    leaders.report_loaded(0)
    leaders.wait_all_loaded(2, is_cancelled=lambda: False)


def test_each_run_has_an_epoch_of_its_own():
    assert Rendezvous.host("127.0.0.1").epoch != Rendezvous.host("127.0.0.1").epoch


def test_a_rank_that_cannot_load_tells_all_why():
    leaders = Rendezvous.host("127.0.0.1")
    ranks = Rendezvous.at(str(leaders))
    ranks.report_failed(1, "the file is cut short.")
    for waiting in (leaders, ranks):
        with pytest.raises(FailedPreconditionError, match="Rank 1 could not load: the file is cut short"):
            waiting.wait_all_loaded(2, is_cancelled=lambda: False)


def test_waiting_ends_when_it_is_cancelled():
    deadline_s = time.monotonic() + 0.2
    with pytest.raises(CancelledError):
        Rendezvous.host("127.0.0.1").wait_all_loaded(2, is_cancelled=lambda: time.monotonic() > deadline_s)


def test_nobody_at_the_address_is_an_error(monkeypatch):
    monkeypatch.setattr(rendezvous_module, "_CONNECT_TIMEOUT", timedelta(seconds=1))
    address = str(Rendezvous.host("127.0.0.1"))
    with pytest.raises(UnavailableError, match="rendezvous"):
        Rendezvous.at(address)


def test_ranks_that_do_not_come_are_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(group_module, "_JOIN_S", 0.5)
    rendezvous = Rendezvous.host("127.0.0.1")
    with pytest.raises(UnavailableError, match="Rank 0 of 2 did not meet the others"):
        RankGroup.join(
            rendezvous.store,
            epoch=rendezvous.epoch,
            parallel=ParallelConfig(tp=2),
            rank=0,
            device=torch.device("cpu"),
            timeout_s=1.0,
        )


def join_again(group: RankGroup) -> float:
    """The sum that the ranks of a second group make, after they have left the first."""
    addresses: list[object] = [None]
    if group.rank == 0:
        rendezvous = Rendezvous.host("127.0.0.1")
        addresses = [str(rendezvous)]
    torch.distributed.broadcast_object_list(addresses, group=group.control)
    group.leave()
    if group.rank > 0:
        rendezvous = Rendezvous.at(str(addresses[0]))
    second = RankGroup.join(
        rendezvous.store,
        epoch=rendezvous.epoch,
        parallel=group.parallel,
        rank=group.rank,
        device=torch.device("cpu"),
        timeout_s=8.0,
    )
    total = second.tensor.all_reduce(torch.ones(1), site="test").item()
    second.leave()
    return total


def test_a_process_that_left_one_group_may_join_another():
    assert run_ranks(2, join_again) == [2.0, 2.0]
