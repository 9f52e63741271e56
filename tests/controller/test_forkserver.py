"""Processes that are forked from one that has imported what they need."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.controller.launchers.forkserver.forkserver import Forkserver
from headway.controller.launchers.forkserver.order import Order
from headway.controller.launchers.local import LocalLauncher
from headway.controller.process import ProcessSpec, module_command
from headway.controller.stack import ChildSettings, wanted_processes
from headway.core.deployment import Deployment, EmulatedDevices, WorkerOptions
from tests.liveness import is_alive

PROGRAM = """
import os, sys, threading, time, preloaded
print(__name__, sys.argv[1:], preloaded.loaded_by == os.getpid(), os.environ["COLOUR"], os.nice(0), flush=True)
raise SystemExit(int(sys.argv[1])) if sys.argv[1:] else time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module to run, and `preloaded`, which it imports."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "preloaded.py").write_text("import os\nloaded_by = os.getpid()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "program"


@pytest.fixture
def launcher(tmp_path: Path) -> LocalLauncher:
    return LocalLauncher(tmp_path / "logs")


def spec_of(*arguments: str, name: str = "a", preload: tuple[str, ...] = ("preloaded",), **changes: Any) -> ProcessSpec:
    fields: dict[str, Any] = {"environment": {"COLOUR": "blue"}, "runtime": {"OMP_NUM_THREADS": "1"}} | changes
    command = (*module_command("program")[:2], "program", *arguments)
    return ProcessSpec(name=name, kind="router", command=command, preload=preload, **fields)


async def test_it_becomes_the_program_with_what_was_imported_before(
    program: str, launcher: LocalLauncher, spawned: list[int], until: Any
) -> None:
    handles = [await launcher.launch(spec_of(name=name, niceness=1)) for name in ("a", "b")]
    spawned.extend(handle.pid for handle in handles)
    parents = {psutil.Process(handle.pid).ppid() for handle in handles}
    assert len(parents) == 1
    assert parents != {os.getpid()}
    for handle in handles:
        await until(lambda handle=handle: launcher.log_path(handle.name).read_text(), what="its first word")
        assert launcher.log_path(handle.name).read_text() == f"__main__ [] False blue {os.nice(0) + 1}\n"
        assert os.getsid(handle.pid) == handle.pid
        assert " -m program" in " ".join(psutil.Process(handle.pid).cmdline())
    await launcher.stop(handles[0], grace_s=5.0)
    assert not psutil.pid_exists(handles[0].pid), "a zombie is left"
    assert await launcher.is_alive(handles[1])


async def test_other_runtimes_have_other_forkservers(program: str, launcher: LocalLauncher, spawned: list[int]) -> None:
    specs = (spec_of(), spec_of(name="b", runtime={"OMP_NUM_THREADS": "2"}))
    handles = [await launcher.launch(spec) for spec in specs]
    spawned.extend(handle.pid for handle in handles)
    assert len({psutil.Process(handle.pid).ppid() for handle in handles}) == 2


async def test_it_is_bound_to_its_cores_whatever_the_one_before_was(
    program: str, launcher: LocalLauncher, spawned: list[int], until: Any
) -> None:
    core = max(os.sched_getaffinity(0))
    for name, cores, usable in (("a", (core,), {core}), ("b", (), os.sched_getaffinity(0))):
        spawned.append((await launcher.launch(spec_of(name=name, cores=cores))).pid)
        await until(lambda name=name: launcher.log_path(name).read_text(), what="its first word")
        assert os.sched_getaffinity(spawned[-1]) == usable


@pytest.mark.parametrize(("arguments", "status"), [(("3",), "Exit status 3"), ((), "Exit status -9")])
async def test_death_is_seen_with_its_status(
    program: str, launcher: LocalLauncher, until: Any, arguments: tuple[str, ...], status: str
) -> None:
    handle = await launcher.launch(spec_of(*arguments))
    if not arguments:
        os.kill(handle.pid, signal.SIGKILL)

    async def dead() -> bool:
        return not await launcher.is_alive(handle)

    await until(dead, what="its death")
    assert status in await launcher.last_words(handle)


async def test_a_lost_forkserver_takes_nobody_along_and_is_replaced(
    program: str, launcher: LocalLauncher, spawned: list[int], until: Any
) -> None:
    handle = await launcher.launch(spec_of())
    server = psutil.Process(psutil.Process(handle.pid).ppid())
    server.kill()
    await until(lambda: not is_alive(server), what="its end")
    assert await launcher.is_alive(handle)
    other = await launcher.launch(spec_of(name="b"))
    spawned.extend((handle.pid, other.pid))
    assert await launcher.is_alive(other)
    await launcher.stop(handle, grace_s=5.0)
    assert not await launcher.is_alive(handle)


async def test_what_cannot_be_preloaded_says_so_itself(program: str, launcher: LocalLauncher, until: Any) -> None:
    handle = await launcher.launch(spec_of("4", preload=("no_such_module",)))

    async def dead() -> bool:
        return not await launcher.is_alive(handle)

    await until(dead, what="its end")
    assert "Exit status 4" in await launcher.last_words(handle)


async def test_it_ends_with_its_controller_and_what_it_forked_goes_on(
    program: str, tmp_path: Path, spawned: list[int], until: Any
) -> None:
    code = f"""
import os
import psutil
from headway.controller.launchers.forkserver.forkserver import Forkserver
from headway.controller.launchers.forkserver.order import Order
server = Forkserver({{}})
environment = dict(os.environ, COLOUR="red")
log_path = {str(tmp_path / "log")!r}
order = Order(preload=(), command=("python", "-m", "program"), environment=environment, log_path=log_path)
pid = server.fork(order)
print(pid, psutil.Process(pid).ppid())
"""
    run = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True)
    pid, server = map(int, run.stdout.split())
    spawned.append(pid)
    await until(lambda: not is_alive(server), what="its server's end")
    assert is_alive(pid)


@pytest.fixture
def forked() -> Iterator[list[int]]:
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("emulate", ["", "V100"])
def test_what_a_stack_preloads_starts_no_thread(
    emulate: str, tmp_path: Path, forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread would not be there after the fork, and whatever it held would be held for ever."""
    (tmp_path / "waiting.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    emulated = (EmulatedDevices(count=1, name=emulate, memory_bytes=2**30),) if emulate else ()
    workers = WorkerOptions(count=1, num_threads=2, memory_bytes=2**30, emulated=emulated)
    settings = ChildSettings(
        redis_url="unix:///r", auth_token=None, namespace="n", bind_host="127.0.0.1", advertise_host=""
    )
    servers: dict[str, Forkserver] = {}
    for spec in wanted_processes(Deployment(models=(), workers=workers), settings=settings):
        assert spec.preload
        runtime = str(spec.runtime)
        server = servers[runtime] = servers.get(runtime) or Forkserver(spec.runtime)
        order = Order(
            preload=spec.preload,
            command=(sys.executable, "-m", "waiting"),
            environment=dict(os.environ),
            log_path=str(tmp_path / "log"),
        )
        forked.append(server.fork(order))
        assert psutil.Process(forked[-1]).parent().num_threads() == 1
