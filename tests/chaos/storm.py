"""Things that happen to a running stack, in an order that a seed gives; and what must hold afterwards."""

import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import psutil
from redis import Redis

from headway.core.errors import HeadwayError
from headway.observe.failpoint import VARIABLE
from headway.observe.log_writers import find_log_writers
from tests.chaos.applies import PAUSE_S, Applies
from tests.chaos.client import Crowd
from tests.chaos.history import Fault, Outcome, lost_applies, violations
from tests.chaos.network import cut_off
from tests.chaos.under_way import UnderWay
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for
from tests.liveness import is_alive

# One may be killed while another is loaded anew by a plan.
_OPTIONS = ("--emulate", "3xV100", "--gateways", "2")
_NUM_CLIENTS = 3
_WELL_TIMEOUT_S = 90.0
_REACH_TIMEOUT_S = 90.0
_HARMS = {"gateway": frozenset({Outcome.BROKEN}), "router": frozenset({Outcome.REFUSED})}
_SERVICES = ("router", "kvcache", "planner", "profiler")
_CALLED = (*_SERVICES, "worker-0", "controller")  # over the network, by processes of the stack
_WATCHED = (*_SERVICES, "gateway-0", "gateway-1", "worker-0", "worker-1", "controller", "redis", "supervisor")
STANDSTILLS_S = (3.0, 5.0, 12.5, 20.0, 60.0)
PARTITIONS_S = (5.0, 20.0)
_IDLE_TIMEOUT_S = 30.0
_LOG_CHARS = 20_000
_NUM_PLANS = 50  # that are looked for: a stack tells of its last hundred, its own among them
_APPENDED = ("appendonly.aof", "appendonlydir")  # up to Redis 6, and since


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """How long it took until nothing was under way, from the last answer on.

    Attributes:
        last: the books that had something in them last.
    """

    after_s: float
    last: list[str]


class Storm:
    """A stack with clients, to which things happen one after the other.

    Args:
        failpoints: the directory that HEADWAY_FAILPOINTS names for the stack.
        pause_s: between two plans that are applied to it.
    """

    def __init__(
        self, stack: RunningStack, failpoints: Path, *, num_clients: int = _NUM_CLIENTS, pause_s: float = PAUSE_S
    ) -> None:
        self._stack = stack
        self._failpoints = failpoints
        key, key_id = self._make_key()
        self._keys = {key_id}
        self._revoked: set[str] = set()
        self.faults: list[Fault] = []
        self.crowd = Crowd(stack.url, num_clients=num_clients, headers={"authorization": f"Bearer {key}"})
        self.applies = Applies(stack.state_dir, pause_s=pause_s)

    def happenings(self) -> dict[str, Callable[[], None]]:
        """What can happen, by name."""
        names = (*_SERVICES, "gateway-0", "gateway-1", "worker-0", "worker-1")
        kills = {f"kill {name}": partial(self._kill, name) for name in names}
        failpoints: dict[str, Callable[[], object]] = {
            "controller.launched": lambda: self._stack.kill("worker-1"),
            "controller.key-kept": lambda: self._stack.headway("key", "create"),
            "controller.plan-kept": lambda: None,  # who applies plans sees to it
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
                "spoil data": self._spoil_data,
                "lose data that was not synced": self._lose_unsynced_data,
                "make a key": lambda: self._keys.add(self._make_key()[1]),
                "revoke a key": self._revoke_key,
            }
        )

    def standstills(self) -> dict[str, Callable[[], None]]:
        """Each process stands still for each of these times, by name; the longer ones are as good as its end."""
        return {
            f"stop {name} for {seconds:g} s": partial(self._stop, name, seconds)
            for name in _WATCHED
            for seconds in STANDSTILLS_S
        }

    def partitions(self) -> dict[str, Callable[[], None]]:
        """The network to each process falls silent for each of these times, by name. Only in a network of one's own,
        which `network.isolate` makes."""
        return {
            f"cut off {name} for {seconds:g} s": partial(self._cut_off, name, seconds)
            for name in _CALLED
            for seconds in PARTITIONS_S
        }

    def run(self, names: list[str]) -> None:
        """Has these happen, each once all is well after the one before."""
        happenings = self.happenings() | self.standstills() | self.partitions()
        for name in names:
            began_s = time.monotonic()
            happenings[name]()
            wait_for(self._is_well, timeout_s=_WELL_TIMEOUT_S, every_s=0.2)
            harms = next((harms for kind, harms in _HARMS.items() if f" {kind}" in name), frozenset())
            self.faults.append(Fault(name=name, began_s=began_s, ended_s=time.monotonic(), harms=harms))

    def until_idle(self) -> Idle:
        """Has nobody ask anything any more, and waits until nothing is under way."""
        under_way, looks = UnderWay(self._stack), list[tuple[float, list[str]]]()

        def is_idle() -> bool:
            looked_s = time.monotonic()
            try:
                found = under_way.look()
            except httpx.TransportError as error:
                found = [repr(error)]
            looks.append((looked_s, found))
            return not found

        wait_for(lambda: under_way.look() != [])  # the books are those of what clients ask
        with self.crowd.resting():
            began_s = time.monotonic()
            try:
                wait_for(is_idle, timeout_s=_IDLE_TIMEOUT_S, every_s=0.05)
            except AssertionError as error:
                raise AssertionError(f"under way by {', '.join(looks[-1][1])}\n{self.logs()}") from error
        return Idle(after_s=looks[-1][0] - began_s, last=looks[-2][1] if len(looks) > 1 else [])

    def violations(self) -> list[str]:
        """What must not have been; ends the clients."""
        requests = self.crowd.end()
        self.applies.end()
        wait_for(self._is_well, timeout_s=_WELL_TIMEOUT_S, every_s=0.2)
        found = violations(requests, self.faults, answers=self.crowd.answers())
        found += lost_applies(self.applies.done[-_NUM_PLANS:], self.applies.plan_ids())
        if lost := self._keys - self._known_keys():
            found.append(f"keys that were acknowledged are lost: {', '.join(sorted(lost))}")
        if opened := self._revoked & self._known_keys(state="active"):
            found.append(f"keys that were revoked open again: {', '.join(sorted(opened))}")
        writers = find_log_writers(self._stack.state_dir / "logs")
        runs = Counter(each.name for each in writers if each.name != "controller")  # its log is its forkservers', too
        found += [f"{name} runs {num} times" for name, num in runs.items() if num > 1]
        return found

    def logs(self) -> str:
        """What the processes have logged, the last of it."""
        return self._stack.logs(num_chars=_LOG_CHARS)

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

    def _stop(self, name: str, seconds: float) -> None:
        """It may be ended meanwhile, by whoever watches it."""
        stopped = psutil.Process(self._pid(name))
        stopped.suspend()
        time.sleep(seconds)
        with suppress(psutil.NoSuchProcess):
            stopped.resume()

    def _cut_off(self, name: str, seconds: float) -> None:
        with cut_off(int(self._stack.endpoint(name).rpartition(":")[2])):
            time.sleep(seconds)

    def _pid(self, name: str) -> int:
        stack = self._stack.stack
        first = {"controller": stack.controller, "redis": stack.redis, "supervisor": stack.supervisor}
        found = first.get(name)
        return self._stack.pid(name) if found is None else found.pid

    def _spoil_data(self) -> None:
        """The append-only file cannot be read when Redis begins again, which sets it aside."""
        with self._redis_ended() as directory:
            (path, *_) = self._appended(directory)
            content = bytearray(path.read_bytes())
            content[content.index(b"\r\n*", len(content) // 2) + 2] = 0  # where a command begins
            path.write_bytes(content)

    def _lose_unsynced_data(self) -> None:
        """The machine ends as by a loss of power: of what Redis has written since, nothing was on the disk. What was
        acknowledged meanwhile was."""
        directory = self._stack.state_dir / "redis"
        before = {path: path.read_bytes() for path in self._appended(directory)}
        self._keys.add(self._make_key()[1])
        with self._redis_ended(also="controller"):
            for path, content in before.items():
                path.write_bytes(content)

    @contextmanager
    def _redis_ended(self, *, also: str = "") -> Iterator[Path]:
        """Redis, and another process with it, have been killed; they begin again behind the block. Gives the directory
        of its data."""
        supervisor = psutil.Process(self._pid("supervisor"))
        killed = [psutil.Process(self._pid(name)) for name in ("redis", also) if name]
        supervisor.suspend()
        try:
            for each in killed:
                each.kill()
            wait_for(lambda: not any(map(is_alive, killed)))
            yield self._stack.state_dir / "redis"
        finally:
            supervisor.resume()
        wait_for(lambda: not {each.pid for each in killed} & {self._pid("redis"), self._pid("controller")})

    def _appended(self, directory: Path) -> list[Path]:
        """The files that Redis appends to; the longest first."""
        roots = [directory / name for name in _APPENDED]
        files = [path for root in roots for path in (root, *root.rglob("*")) if path.is_file()]
        return sorted(files, key=lambda path: -path.stat().st_size)

    def _revoke_key(self) -> None:
        key_id = self._make_key()[1]
        revoked = self._stack.headway("key", "revoke", key_id)
        assert revoked.returncode == 0, revoked.stderr
        self._revoked.add(key_id)

    def _make_key(self) -> tuple[str, str]:
        """An acknowledged key and its id."""
        made = self._stack.headway("key", "create")
        assert made.returncode == 0, made.stderr
        key_id = re.search(r"\bkey-[0-9a-f]+", made.stdout + made.stderr)
        assert key_id is not None
        return made.stdout.split()[0], key_id.group()

    def _known_keys(self, *, state: str = "") -> set[str]:
        """Their ids; of those only that are in this state, if one is given."""
        listed = self._stack.headway("key", "list", "--json")
        assert listed.returncode == 0, listed.stderr
        return {each["key_id"] for each in json.loads(listed.stdout) if state in ("", each["state"])}

    def _is_well(self) -> bool:
        """All processes are there, and the router sends requests to every group."""
        try:
            status = self._stack.status()
        except (HeadwayError, AssertionError):
            return False
        controller, groups = status["controller"], (status.get("fleet") or {}).get("groups")
        return (
            bool(controller["ready"])
            and all(each["state"] == "ready" and is_alive(each["pid"]) for each in controller["processes"])
            and bool(groups)
            and all(each["state"] == "ready" for each in groups)
        )


def draw(seed: int, names: list[str], *, num: int) -> list[str]:
    """The order of what happens: the same for the same seed. Nothing comes again before all have been."""
    chance, drawn = random.Random(seed), list[str]()
    while len(drawn) < num:
        drawn += chance.sample(sorted(names), len(names))
    return drawn[:num]


@contextmanager
def storming(directory: Path, *, num_clients: int = _NUM_CLIENTS, pause_s: float = PAUSE_S) -> Iterator[Storm]:
    """A stack of its own, whose clients have begun."""
    failpoints = directory / "failpoints"
    failpoints.mkdir()
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(failpoints)  # every process of the stack inherits it
    stack = RunningStack(directory / "state", {"tiny": write_model(directory / "model")}, *_OPTIONS)
    try:
        stack.start()
        storm = Storm(stack, failpoints, num_clients=num_clients, pause_s=pause_s)
        storm.crowd.start()
        storm.applies.start()
        try:
            yield storm
        finally:
            storm.applies.end()
            storm.crowd.end()
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        stack.stop()
