"""The clock of a whole machine is set by an hour, forth and back, under a stack that serves.

The kernel's own clock belongs to every test of the machine. So a library that is loaded into each process of the stack,
Redis's included, adds the hour to every reading of the wall clock.
"""

import os
import signal
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis import Redis

from headway.client.stack import ProcessId
from headway.observe.log_writers import find_log_writers
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for

HOUR_S = 3600
BODY = {"model": "tiny", "prompt": "a b c", "max_tokens": 5}


class Clock:
    """What is added to the wall clock of processes that were started with `environment`."""

    def __init__(self, directory: Path) -> None:
        library, self._file = directory / "clock.so", directory / "clock"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self._file.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), "TEST_CLOCK": str(self._file)}

    def set(self, *, seconds: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", seconds))


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def stack(tmp_path: Path, clock: Clock) -> Iterator[RunningStack]:
    models = {"tiny": write_model(tmp_path / "model")}
    running = RunningStack(tmp_path / "state", models, "--emulate", "2xV100", "--no-profile").start()
    yield running
    running.stop()


def pids(stack: RunningStack) -> dict[str, int]:
    """Of all but the controller."""
    processes = stack.status()["controller"]["processes"]
    return {each["name"]: each["pid"] for each in processes if each["kind"] != "controller"}


def answers(stack: RunningStack, num: int) -> Counter[int]:
    return Counter(httpx.post(f"{stack.url}/v1/completions", json=BODY, timeout=60).status_code for _ in range(num))


def kill_controller(stack: RunningStack) -> ProcessId:
    killed = stack.stack.controller
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    return killed


def has_another_controller(stack: RunningStack, before: ProcessId) -> bool:
    return stack.stack.controller not in (None, before) and bool(stack.status()["controller"]["ready"])


def test_no_process_is_lost_doubled_or_left_when_the_clock_is_set(stack: RunningStack, clock: Clock) -> None:
    """Issue 30: a step of an hour and a new controller doubled five services, and `headway down` left 16 processes."""
    before = pids(stack)
    with Redis(unix_socket_path=stack.stack.redis_url.removeprefix("unix://")) as redis:
        for seconds in (HOUR_S, -HOUR_S):
            now_s = redis.time()[0]  # type: ignore[index]
            clock.set(seconds=seconds)
            assert abs(redis.time()[0] - now_s) > HOUR_S / 2, "the clock was not set"  # type: ignore[index]
            assert answers(stack, 10) == {200: 10}
            killed = kill_controller(stack)
            wait_for(lambda: has_another_controller(stack, killed))  # noqa: B023
            assert answers(stack, 10) == {200: 10}
            assert pids(stack) == before
    writers = Counter(each.name for each in find_log_writers(stack.state_dir / "logs") if each.name in before)
    assert writers == dict.fromkeys(before, 1)
    killed_worker = stack.kill("worker-0")
    wait_for(lambda: pids(stack).get("worker-0") not in (None, killed_worker))
    wait_for(lambda: bool(stack.status()["controller"]["ready"]))
    assert answers(stack, 4) == {200: 4}


def test_a_controller_that_dies_just_before_the_clock_is_set_back_holds_no_lease_for_long(
    stack: RunningStack, clock: Clock
) -> None:
    """It cannot renew its lease, which is there for two hours more by the clock of Redis."""
    before, killed = pids(stack), kill_controller(stack)
    clock.set(seconds=-2 * HOUR_S)
    wait_for(lambda: has_another_controller(stack, killed))
    assert answers(stack, 4) == {200: 4}
    assert pids(stack) == before
