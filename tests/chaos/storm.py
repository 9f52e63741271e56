"""Things that happen to a running stack, in an order that a seed gives; and what must hold afterwards."""

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
from redis import Redis

from headway.core.errors import HeadwayError
from headway.observe.failpoint import VARIABLE
from headway.observe.log_writers import find_log_writers
from tests.chaos.client import Crowd
from tests.chaos.history import Fault, Outcome, violations
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for

_OPTIONS = ("--emulate", "2xV100", "--gateways", "2")
_NUM_CLIENTS = 3
_WELL_TIMEOUT_S = 90.0
_REACH_TIMEOUT_S = 90.0
_HARMS = {"gateway": frozenset({Outcome.BROKEN}), "router": frozenset({Outcome.REFUSED})}
_SERVICES = ("router", "kvcache", "planner", "profiler")


class Storm:
    """A stack with clients, to which things happen one after the other.

    Args:
        failpoints: the directory that HEADWAY_FAILPOINTS names for the stack.
    """

    def __init__(self, stack: RunningStack, failpoints: Path) -> None:
        self._stack = stack
        self._failpoints = failpoints
        key, key_id = self._make_key()
        self._keys = {key_id}
        self.faults: list[Fault] = []
        self.crowd = Crowd(stack.url, num_clients=_NUM_CLIENTS, headers={"authorization": f"Bearer {key}"})

    def happenings(self) -> dict[str, Callable[[], None]]:
        """What can happen, by name."""
        names = (*_SERVICES, "gateway-0", "gateway-1", "worker-0", "worker-1")
        kills = {f"kill {name}": partial(self._kill, name) for name in names}
        failpoints: dict[str, Callable[[], object]] = {
            "controller.launched": lambda: self._stack.kill("worker-1"),
            "controller.key-kept": lambda: self._stack.headway("key", "create"),
            "router.placed": lambda: None,  # the clients see to it
            "worker.computed": lambda: None,
            "worker.loaded": lambda: self._stack.kill("worker-0"),
            "gateway.answered": lambda: None,
        }
        reached = {f"reach {name}": partial(self._reach, name, trigger) for name, trigger in failpoints.items()}
        return (
            kills
            | reached
            | {
                "kill controller": self._kill_controller,
                "lose data": self._lose_data,
                "make a key": lambda: self._keys.add(self._make_key()[1]),
            }
        )

    def run(self, names: list[str]) -> None:
        """Has these happen, each once all is well after the one before."""
        happenings = self.happenings()
        for name in names:
            began_s = time.monotonic()
            happenings[name]()
            wait_for(self._is_well, timeout_s=_WELL_TIMEOUT_S, every_s=0.2)
            kind = name.split()[1].partition(".")[0].partition("-")[0]
            self.faults.append(
                Fault(name=name, began_s=began_s, ended_s=time.monotonic(), harms=_HARMS.get(kind, frozenset()))
            )

    def violations(self) -> list[str]:
        """What must not have been; ends the clients."""
        requests = self.crowd.end()
        found = violations(requests, self.faults, answers=self.crowd.answers())
        if lost := self._keys - self._known_keys():
            found.append(f"keys that were acknowledged are lost: {', '.join(sorted(lost))}")
        writers = find_log_writers(self._stack.state_dir / "logs")
        runs = Counter(each.name for each in writers if each.name != "controller")  # its log is its forkservers', too
        found += [f"{name} runs {num} times" for name, num in runs.items() if num > 1]
        return found

    def _kill(self, name: str) -> None:
        self._stack.kill(name)

    def _kill_controller(self) -> None:
        controller = self._stack.stack.controller
        assert controller is not None
        os.kill(controller.pid, signal.SIGKILL)
        wait_for(lambda: self._stack.stack.controller not in (None, controller), timeout_s=_WELL_TIMEOUT_S)

    def _reach(self, name: str, trigger: Callable[[], object]) -> None:
        reached = self._failpoints / f"{name}.reached"
        reached.unlink(missing_ok=True)
        (self._failpoints / name).touch()
        trigger()
        wait_for(reached.exists, timeout_s=_REACH_TIMEOUT_S)

    def _lose_data(self) -> None:
        with Redis(unix_socket_path=self._stack.stack.redis_url.removeprefix("unix://")) as redis:
            redis.flushall()
            wait_for(lambda: bool(redis.exists("headway:kept")), timeout_s=_WELL_TIMEOUT_S)

    def _make_key(self) -> tuple[str, str]:
        """An acknowledged key and its id."""
        made = self._stack.headway("key", "create")
        assert made.returncode == 0, made.stderr
        key_id = re.search(r"\bkey-[0-9a-f]+", made.stdout + made.stderr)
        assert key_id is not None
        return made.stdout.split()[0], key_id.group()

    def _known_keys(self) -> set[str]:
        listed = self._stack.headway("key", "list", "--json")
        assert listed.returncode == 0, listed.stderr
        return set(re.findall(r"\bkey-[0-9a-f]+", listed.stdout))

    def _is_well(self) -> bool:
        try:
            controller = self._stack.status()["controller"]
        except (HeadwayError, AssertionError):
            return False
        processes = controller["processes"]
        return bool(controller["ready"]) and all(each["state"] == "ready" and _lives(each["pid"]) for each in processes)


def _lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def draw(seed: int, names: list[str], *, num: int) -> list[str]:
    """The order of what happens: the same for the same seed. Nothing comes again before all have been."""
    chance, drawn = random.Random(seed), list[str]()
    while len(drawn) < num:
        drawn += chance.sample(sorted(names), len(names))
    return drawn[:num]


@contextmanager
def storming(directory: Path) -> Iterator[Storm]:
    """A stack of its own, whose clients have begun."""
    failpoints = directory / "failpoints"
    failpoints.mkdir()
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(failpoints)  # every process of the stack inherits it
    stack = RunningStack(directory / "state", {"tiny": write_model(directory / "model")}, *_OPTIONS)
    try:
        stack.start()
        storm = Storm(stack, failpoints)
        storm.crowd.start()
        try:
            yield storm
        finally:
            storm.crowd.end()
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        stack.stop()
