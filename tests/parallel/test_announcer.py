"""The line on which steps are announced, between real processes."""

import os
import signal
import time

import numpy as np
import pytest
import torch

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.announcer import Announcer
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.listener import Listener
from headway.runner.step_message import ModelInput, StepKind, StepMessage
from tests.parallel.ranks import DIED, run_ranks

DEADLINE_S = 60.0
"""What is noticed before it was not noticed by it."""

LENGTHS = [1, 100_000, 2, 5000, 3, 3, 50_000]


def message(num_tokens: int) -> StepMessage:
    one, none = np.ones(1, np.int32), np.zeros(0, np.int32)
    return StepMessage(
        StepKind.STEP, model_input=ModelInput(np.arange(num_tokens, dtype=np.int32), one, one, none, none, none)
    )


def announce_all(group: RankGroup) -> list[int]:
    """Lengths as they were heard, up to the end."""
    if group.rank == 0:
        announcer = Announcer(group.control, timeout_s=group.timeout_s)
        for length in LENGTHS:
            announcer.announce(message(length))
        announcer.stop()
        return LENGTHS
    listener, lengths = Listener(group), []
    while (heard := listener.next()).kind is not StepKind.STOP:
        assert heard.model_input.token_ids.tolist() == list(range(len(heard.model_input.token_ids)))
        lengths.append(len(heard.model_input.token_ids))
        time.sleep(0.02 * group.rank)
    return lengths


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_every_rank_hears_every_message_in_order_short_and_long(num_ranks):
    assert run_ranks(num_ranks, announce_all) == [LENGTHS] * num_ranks


def announce_ahead(group: RankGroup, num_in_flight: int) -> None:
    """The other rank listens once the leader has announced as many steps as may be in flight, and one more."""
    if group.rank == 0:
        announcer = Announcer(group.control, num_in_flight=num_in_flight, timeout_s=group.timeout_s)
        for number in range(num_in_flight + 1):
            announcer.announce(message(number + 1))
        group.tensor.all_reduce(torch.zeros(1), site="test")
        announcer.stop()
        return
    group.tensor.all_reduce(torch.zeros(1), site="test")
    listener = Listener(group)
    for number in range(num_in_flight + 1):
        assert len(listener.next().model_input.token_ids) == number + 1
    assert listener.next().kind is StepKind.STOP


@pytest.mark.parametrize("num_in_flight", [1, 4])
def test_as_many_steps_are_announced_ahead_as_may_be_in_flight(num_in_flight):
    run_ranks(2, announce_ahead, num_in_flight)


def hear_the_leader_die(group: RankGroup) -> None:
    if group.rank == 0:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RunnerLostError, match="the leader is gone"):
        Listener(group).next()


def test_an_idle_rank_notices_that_its_leader_died():
    assert run_ranks(3, hear_the_leader_die) == [DIED, None, None]


def announce_often(announcer: Announcer) -> None:
    for _ in range(20):
        announcer.announce(message(10))


def announce_to_the_dead(group: RankGroup, fate: signal.Signals) -> float | None:
    """Seconds until the leader notices, in any case after its deadline."""
    if group.rank > 0:
        Listener(group)
        os.kill(os.getpid(), fate)
    time.sleep(0.3)
    announcer, started_s = Announcer(group.control, timeout_s=DEADLINE_S), time.monotonic()
    with pytest.raises(RunnerLostError):
        announce_often(announcer)
    return time.monotonic() - started_s


def test_a_rank_that_died_while_idle_is_noticed_at_the_next_step():
    wait_s, rank = run_ranks(2, announce_to_the_dead, signal.SIGKILL)
    assert rank == DIED
    assert wait_s < DEADLINE_S


def stop_idle(group: RankGroup) -> None:
    """Lets all go after a while without steps."""
    if group.rank == 0:
        announcer = Announcer(group.control, timeout_s=group.timeout_s)
        time.sleep(1.0)
        announcer.stop()
    else:
        assert Listener(group).next().kind is StepKind.STOP
    group.leave()


def test_a_group_parts_however_long_it_idled():
    """Ranks may wait for a step longer than a collective may take."""
    run_ranks(3, stop_idle, collective_timeout_s=0.5)
