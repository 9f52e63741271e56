"""Two groups, each a pipeline of two workers: what becomes of the streams of one that dies or stands still."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.faults import (
    is_ready,
    num_used_blocks,
    stream,
    streams,
    wait_until_renewed,
    worker_pids,
)
from tests.integration.stack import RunningStack, wait_for

OPTIONS = ("--pp", "2", "--workers", "4", "--max-model-len", "1024", "--threads", "1", "--memory", "1GiB")


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Iterator[RunningStack]:
    running = RunningStack(tmp_path_factory.mktemp("groups"), {"tiny": checkpoint}, *OPTIONS, "--no-profile").start()
    yield running
    running.stop()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_streams_of_a_lost_leader_go_on_in_the_other_group(groups: RunningStack, signal_number: signal.Signals) -> None:
    """A stopped one is given up when it has not renewed its lease for long; it ends before another takes its place."""
    expected = stream(groups, after_tokens=1, then=lambda: None)
    before = worker_pids(groups)
    workers = groups.status()["controller"]["workers"]
    lost = {worker["worker_id"] for worker in workers if worker["group_id"] == "group-0"}
    [leader] = [worker["worker_id"] for worker in workers if worker["worker_id"] in lost and not worker.get("rank")]
    outcomes = streams(groups, num=4, then=lambda: os.kill(before[leader], signal_number))
    assert outcomes == [expected] * 4
    wait_until_renewed(groups, {name: before[name] for name in lost})
    assert not any(psutil.pid_exists(before[name]) for name in lost)
    after = worker_pids(groups)
    assert {name for name, pid in before.items() if after[name] != pid} == lost
    wait_for(lambda: num_used_blocks(groups) == 0)
    wait_for(lambda: is_ready(groups))
