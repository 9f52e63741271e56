"""A stage that dies, hangs or fails is lost to all."""

import signal
from pathlib import Path

import pytest

from headway.core.parallel_config import ParallelConfig
from tests.checkpoints import make_checkpoint
from tests.parallel.ranks import DIED, run_ranks
from tests.parallel.roles import fail_in, lose_in

DEADLINE_S = 60.0
"""What is noticed before it was not noticed by it."""

PAIR, THREE, SQUARE = ParallelConfig(pp=2), ParallelConfig(pp=3), ParallelConfig(pp=2, tp=2)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), "llama", num_hidden_layers=3)


@pytest.mark.parametrize(("parallel", "victim"), [*((THREE, rank) for rank in range(3)), (SQUARE, 3)], ids=str)
def test_a_stage_that_dies_is_noticed_before_the_deadline_by_all(directory, parallel, victim):
    waits_s = run_ranks(parallel, lose_in, directory, victim, signal.SIGKILL, collective_timeout_s=DEADLINE_S)
    assert waits_s.pop(victim) == DIED
    assert max(waits_s) < DEADLINE_S


@pytest.mark.parametrize("victim", [1, 2])
def test_a_stage_that_hangs_is_noticed_at_the_deadline_by_all(directory, victim):
    """But for the leader's: that is no other than a leader that has nothing to do."""
    waits_s = run_ranks(THREE, lose_in, directory, victim, signal.SIGSTOP, collective_timeout_s=1.5)
    assert waits_s.pop(victim) == DIED


@pytest.mark.parametrize("failing_rank", [0, 1])
def test_a_stage_that_fails_is_lost_to_the_leader(directory, failing_rank):
    message, _ = run_ranks(PAIR, fail_in, directory, failing_rank)
    assert "nothing to share" in message if failing_rank == 0 else "pipeline, receive" in message
