"""A group of two cache shards: what becomes of its streams when a process dies or stands still for a while."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.faults import (
    check,
    is_ready,
    num_used_blocks,
    stopped,
    stream,
    streams,
    wait_until_renewed,
    worker_pids,
)
from tests.integration.stack import RunningStack, wait_for

OPTIONS = ("--cp", "2", "--max-model-len", "1024", "--threads", "1", "--memory", "1GiB", "--no-profile")


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Iterator[RunningStack]:
    running = RunningStack(tmp_path_factory.mktemp("shards"), {"tiny": checkpoint}, *OPTIONS).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def expected(group: RunningStack) -> str:
    text, error = stream(group, after_tokens=1, then=lambda: None)
    assert not error
    return text


@pytest.fixture(autouse=True)
def lease_table(group: RunningStack) -> Iterator[None]:
    """The group serves before, and holds nothing afterwards."""
    wait_for(lambda: is_ready(group), every_s=0.2)
    yield
    wait_for(lambda: num_used_blocks(group) == 0, every_s=0.2)


def test_kill_9_of_a_rank_that_does_not_lead_costs_its_group_a_restart(group: RunningStack, expected: str) -> None:
    before = worker_pids(group)
    for outcome in streams(group, num=3, then=lambda: os.kill(before["worker-1"], signal.SIGKILL)):
        check(outcome, expected)
    wait_until_renewed(group, before)
    assert stream(group, after_tokens=1, then=lambda: None) == (expected, "")


def test_kill_9_of_the_kv_cache_service_is_not_seen_in_streams(group: RunningStack, expected: str) -> None:
    assert streams(group, num=3, then=lambda: group.kill("kvcache")) == [(expected, "")] * 3
    wait_for(lambda: group.headway("kv", "top", "--json").returncode == 0, every_s=0.2)


def test_a_rank_that_stands_still_for_10_s_is_a_pause(group: RunningStack, expected: str) -> None:
    before = worker_pids(group)
    with ExitStack() as ends:
        stop = stopped(before["worker-1"], for_s=10.0)
        outcomes = streams(group, num=3, then=lambda: ends.enter_context(stop))
    assert outcomes == [(expected, "")] * 3
    assert worker_pids(group) == before
