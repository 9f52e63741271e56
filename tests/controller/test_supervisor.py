"""Supervision of real processes, with records in a real Redis.

Both controllers of a test are one process, and the first does not wait for its children: of those zombies are left.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headway.controller.launchers.local import LocalLauncher
from headway.controller.process import ProcessRecord, ProcessSpec
from headway.controller.supervisor import Supervisor
from headway.rpc.peers import Peers
from headway.store.documents import Documents
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.store.schema import PROCESS
from tests.controller.stack import always
from tests.liveness import is_alive

HANGS_AFTER_S = 1.0

Supervise = Callable[[Sequence[ProcessSpec]], Supervisor]


@pytest.fixture
def records(database: Database) -> Documents[ProcessRecord]:
    return Documents(database, PROCESS, ProcessRecord)


@pytest.fixture
async def supervise(
    database: Database, records: Documents[ProcessRecord], tmp_path: Path, spawned: list[int]
) -> AsyncIterator[Supervise]:
    """Makes supervisors over one Redis and one log directory: one after the other, as controllers are."""
    membership = Membership(database)
    async with Peers(membership).watching() as peers:

        def make(specs: Sequence[ProcessSpec]) -> Supervisor:
            launcher = LocalLauncher(tmp_path / "logs")
            return Supervisor(
                specs,
                launcher=launcher,
                records=records,
                membership=membership,
                peers=peers,
                may_act=always,
                hangs_after_s=HANGS_AFTER_S,
            )

        yield make
        spawned.extend(record.pid for record in await records.all())


def pid_of(supervisor: Supervisor, name: str) -> int:
    handle = supervisor.processes[name].handle
    assert handle is not None
    return handle.pid


def watch_over(supervisor: Supervisor) -> Coroutine[None, None, None]:
    return supervisor.watch(on_death=lambda name, pid: None)


async def end_watch(watch: asyncio.Task[None]) -> None:
    """As a crash of the controller would: nothing is stopped."""
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch


async def register(database: Database, name: str, pid: int) -> None:
    member = Member(
        kind=name, member_id=name, endpoint="127.0.0.1:1", metrics_endpoint="", pid=pid, started_at_s=time.time()
    )
    await Membership(database).enter(member)


async def test_what_is_killed_is_back_within_a_second(
    supervise: Supervise, make_spec: Any, until: Any, records: Documents[ProcessRecord]
) -> None:
    supervisor = supervise([make_spec("router"), make_spec("gateway")])
    assert await supervisor.start() == []
    watch = asyncio.create_task(watch_over(supervisor))
    router, gateway = pid_of(supervisor, "router"), pid_of(supervisor, "gateway")

    os.kill(router, signal.SIGKILL)
    assert await until(lambda: pid_of(supervisor, "router") != router, what="a new router") < 1.0

    assert is_alive(pid_of(supervisor, "router"))
    assert pid_of(supervisor, "gateway") == gateway
    record = await records.get("router")
    assert record is not None
    assert (record.pid, record.num_restarts) == (pid_of(supervisor, "router"), 1)
    await supervisor.stop()
    await watch


async def test_stopping_leaves_nothing_behind(
    supervise: Supervise, make_spec: Any, records: Documents[ProcessRecord]
) -> None:
    supervisor = supervise([make_spec("router"), make_spec("worker-0", kind="worker")])
    await supervisor.start()
    watch = asyncio.create_task(watch_over(supervisor))
    pids = [pid_of(supervisor, name) for name in supervisor.processes]
    await supervisor.stop()
    await watch
    assert not any(is_alive(pid) for pid in pids)
    assert await records.all() == []


async def test_workers_are_stopped_before_services(
    supervise: Supervise, make_spec: Any, until: Any, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "ends")  # a disk may keep who writes to a file for longer than a process has to end
    ends = os.open(tmp_path / "ends", os.O_RDWR)
    code = (
        "import signal, sys, time\n"
        f"ends = open({str(tmp_path / 'ends')!r}, 'w')\n"
        "def end(*_):\n"
        "    ends.write(sys.argv[-1] + ' ')\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    names = ("gateway", "worker-0")
    specs = [make_spec(name, code, kind="worker" if name == "worker-0" else name) for name in names]
    specs = [
        ProcessSpec(name=spec.name, kind=spec.kind, command=(*spec.command, spec.name), niceness=0) for spec in specs
    ]
    supervisor = supervise(specs)
    await supervisor.start()
    logs = [tmp_path / "logs" / f"{name}.log" for name in names]
    await until(lambda: all(log.read_text() for log in logs), what="their first words")
    await supervisor.stop()
    assert os.read(ends, 100).split() == [b"worker-0", b"gateway"]
    os.close(ends)


async def test_a_second_controller_adopts_what_the_first_left(supervise: Supervise, make_spec: Any, until: Any) -> None:
    specs = [make_spec("router"), make_spec("gateway")]
    first = supervise(specs)
    await first.start()
    watch = asyncio.create_task(watch_over(first))
    pids = {name: pid_of(first, name) for name in first.processes}
    await end_watch(watch)

    second = supervise(specs)
    assert sorted(await second.start()) == ["gateway", "router"]
    assert {name: pid_of(second, name) for name in second.processes} == pids

    watch = asyncio.create_task(watch_over(second))
    os.kill(pids["router"], signal.SIGKILL)
    assert await until(lambda: pid_of(second, "router") != pids["router"], what="a new router") < 1.0
    await second.stop()
    await watch
    assert not is_alive(pids["gateway"])


async def test_what_died_in_between_is_launched_and_what_changed_or_is_not_wanted_is_ended(
    supervise: Supervise, make_spec: Any
) -> None:
    first = supervise([make_spec(name) for name in ("router", "gateway", "planner", "kvcache")])
    await first.start()
    pids = {name: pid_of(first, name) for name in first.processes}
    os.kill(pids["router"], signal.SIGKILL)

    changed = make_spec("gateway", "import time; time.sleep(601)")
    second = supervise([make_spec("router"), changed, make_spec("kvcache")])
    assert await second.start() == ["kvcache"]
    assert pid_of(second, "router") != pids["router"]
    assert pid_of(second, "gateway") != pids["gateway"]
    assert not is_alive(pids["gateway"])
    assert not is_alive(pids["planner"])
    await second.stop()


async def test_the_lease_of_the_dead_is_withdrawn_at_once(
    supervise: Supervise, make_spec: Any, until: Any, database: Database
) -> None:
    supervisor = supervise([make_spec("router")])
    await supervisor.start()
    router = pid_of(supervisor, "router")
    await register(database, "router", router)
    watch = asyncio.create_task(watch_over(supervisor))
    await until(lambda: supervisor.processes["router"].has_been_ready, what="its readiness")

    os.kill(router, signal.SIGKILL)

    async def withdrawn() -> bool:
        return not await Membership(database).members("router")

    assert await until(withdrawn, what="the withdrawal") < 1.0
    await supervisor.stop()
    await watch


async def test_a_lease_of_an_earlier_run_does_not_make_a_process_ready(
    supervise: Supervise, make_spec: Any, database: Database
) -> None:
    await register(database, "router", pid=1)
    supervisor = supervise([make_spec("router")])
    await supervisor.start()
    await asyncio.sleep(0.6)  # a refresh of the members
    assert supervisor.member_of("router") is None
    await supervisor.stop()


async def test_a_process_that_keeps_ending_at_its_start_is_a_fault(
    supervise: Supervise, make_spec: Any, until: Any
) -> None:
    supervisor = supervise([make_spec("router", "raise SystemExit('no port left')"), make_spec("gateway")])
    await supervisor.start()
    watch = asyncio.create_task(watch_over(supervisor))
    await until(lambda: supervisor.fault() is not None, what="the fault")
    fault = supervisor.fault()
    assert fault is not None
    assert "router does not start" in fault.message
    assert "no port left" in fault.hint
    await supervisor.stop()
    await watch


async def test_deaths_are_told_with_the_pid_that_died(supervise: Supervise, make_spec: Any, until: Any) -> None:
    supervisor, deaths = supervise([make_spec("router"), make_spec("gateway")]), list[tuple[str, int]]()
    await supervisor.start()
    router = pid_of(supervisor, "router")
    watch = asyncio.create_task(supervisor.watch(on_death=lambda name, pid: deaths.append((name, pid))))
    os.kill(router, signal.SIGKILL)
    await until(lambda: pid_of(supervisor, "router") != router, what="a new router")
    assert deaths == [("router", router)]
    await supervisor.stop()
    await watch


async def test_a_run_that_is_ended_is_replaced_at_once_even_if_it_is_stopped_and_counts_as_no_death(
    supervise: Supervise, make_spec: Any, until: Any, database: Database
) -> None:
    supervisor, deaths = supervise([make_spec("worker-0", kind="worker")]), list[str]()
    await supervisor.start()
    watch = asyncio.create_task(supervisor.watch(on_death=lambda name, pid: deaths.append(name)))
    process = supervisor.processes["worker-0"]
    for number in range(1, 5):
        pid = pid_of(supervisor, "worker-0")
        os.kill(pid, signal.SIGSTOP)
        supervisor.end_run("worker-0", pid=pid)
        assert await until(lambda pid=pid: pid_of(supervisor, "worker-0") != pid, what="the next run") < 1.5
        assert not is_alive(pid)
        assert process.num_restarts == number
    assert (process.num_early_deaths, process.num_quick_deaths, deaths) == (0, 0, [])
    supervisor.end_run("worker-0", pid=pid)  # an earlier run: the present one goes on
    await asyncio.sleep(0.3)
    assert process.num_restarts == 4
    assert is_alive(pid_of(supervisor, "worker-0"))
    await supervisor.stop()
    await watch


async def test_what_is_stopped_is_replaced_once_it_has_missed_its_lease_for_long(
    supervise: Supervise, make_spec: Any, until: Any, database: Database
) -> None:
    supervisor, deaths = supervise([make_spec("router"), make_spec("gateway")]), list[tuple[str, int]]()
    await supervisor.start()
    pids = {name: pid_of(supervisor, name) for name in supervisor.processes}
    await register(database, "router", pids["router"])
    watch = asyncio.create_task(supervisor.watch(on_death=lambda name, pid: deaths.append((name, pid))))
    await until(lambda: supervisor.processes["router"].has_been_ready, what="its readiness")

    os.kill(pids["router"], signal.SIGSTOP)
    [member] = await Membership(database).members("router")
    await Membership(database).withdraw(member)  # as if it had lapsed
    await until(lambda: supervisor.member_of("router") is None, what="the lapse")
    await register(database, "router", pids["router"])  # it was stopped for a moment
    await asyncio.sleep(HANGS_AFTER_S + 0.5)
    assert is_alive(pids["router"])

    await Membership(database).withdraw(member)
    took_s = await until(lambda: pid_of(supervisor, "router") != pids["router"], what="the next run")
    assert took_s > HANGS_AFTER_S
    assert deaths == [("router", pids["router"])]
    assert not is_alive(pids["router"])
    assert pid_of(supervisor, "gateway") == pids["gateway"]  # it never had a lease: it may be starting
    await supervisor.stop()
    await watch


async def test_what_has_hung_while_there_was_no_controller_is_replaced_by_the_next(
    supervise: Supervise, make_spec: Any, until: Any, database: Database
) -> None:
    first = supervise([make_spec("router")])
    await first.start()
    pid = pid_of(first, "router")
    await register(database, "router", pid)
    watch = asyncio.create_task(watch_over(first))
    await until(lambda: first.processes["router"].has_been_ready, what="its readiness")
    await end_watch(watch)
    os.kill(pid, signal.SIGSTOP)
    [member] = await Membership(database).members("router")
    await Membership(database).withdraw(member)

    second = supervise([make_spec("router")])
    assert await second.start() == ["router"]
    watch = asyncio.create_task(watch_over(second))
    await until(lambda: pid_of(second, "router") != pid, what="the next run")
    assert not is_alive(pid)
    await second.stop()
    await watch


async def test_a_run_that_a_killed_controller_has_not_written_down_is_ended_by_the_next(
    supervise: Supervise, make_spec: Any, records: Documents[ProcessRecord]
) -> None:
    specs = [make_spec("router"), make_spec("worker-0", kind="worker")]
    first = supervise(specs)
    await first.start()
    router, worker = pid_of(first, "router"), pid_of(first, "worker-0")
    await records.delete("worker-0")  # as if it had been killed between the launch and the record

    second = supervise(specs)
    assert await second.start() == ["router"]
    assert pid_of(second, "router") == router
    assert pid_of(second, "worker-0") != worker
    assert not is_alive(worker)
    await second.stop()
