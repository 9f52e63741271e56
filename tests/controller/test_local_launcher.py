"""Real processes on this machine."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.controller.launchers.local import LocalLauncher
from headway.controller.process import Handle

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


@pytest.fixture
def launcher(tmp_path: Path) -> LocalLauncher:
    return LocalLauncher(tmp_path / "logs")


async def test_a_process_lives_until_it_is_stopped(launcher: LocalLauncher, make_spec: Any, spawned: list[int]) -> None:
    handle = await launcher.launch(make_spec("router"))
    spawned.append(handle.pid)
    assert await launcher.is_alive(handle)
    assert os.getsid(handle.pid) == handle.pid, "it would die with our terminal"
    await launcher.stop(handle, grace_s=5.0)
    assert not await launcher.is_alive(handle)
    assert not psutil.pid_exists(handle.pid), "a zombie is left"
    await launcher.stop(handle, grace_s=5.0)


async def test_one_that_will_not_end_is_ended(
    launcher: LocalLauncher, make_spec: Any, spawned: list[int], until: Any
) -> None:
    handle = await launcher.launch(make_spec("router", STUBBORN))
    spawned.append(handle.pid)
    await until(lambda: launcher.log_path("router").read_text(), what="its first word")
    await launcher.stop(handle, grace_s=0.2)
    assert not psutil.pid_exists(handle.pid)


async def test_death_is_seen_and_its_last_words_are_kept(launcher: LocalLauncher, make_spec: Any, until: Any) -> None:
    handle = await launcher.launch(make_spec("router", "print('working'); print('farewell'); raise SystemExit(3)"))

    async def dead() -> bool:
        return not await launcher.is_alive(handle)

    await until(dead, what="its death")
    words = await launcher.last_words(handle)
    assert "Exit status 3" in words
    assert words.endswith("farewell")


async def test_a_killed_process_is_seen_dead_at_once(
    launcher: LocalLauncher, make_spec: Any, spawned: list[int], until: Any
) -> None:
    handle = await launcher.launch(make_spec("router"))
    spawned.append(handle.pid)
    os.kill(handle.pid, signal.SIGKILL)

    async def dead() -> bool:
        return not await launcher.is_alive(handle)

    assert await until(dead, what="its death") < 1.0


async def test_another_launcher_goes_on_from_the_handle(
    launcher: LocalLauncher, make_spec: Any, spawned: list[int], tmp_path: Path
) -> None:
    handle = await launcher.launch(make_spec("router"))
    spawned.append(handle.pid)
    other = LocalLauncher(tmp_path / "logs")
    assert await other.is_alive(handle)
    await other.stop(handle, grace_s=5.0)
    assert not await other.is_alive(handle)
    assert not await launcher.is_alive(handle)


async def test_a_pid_that_was_used_again_is_not_ours(launcher: LocalLauncher) -> None:
    ourselves = Handle(name="router", pid=os.getpid(), start="boot/1", started_at_s=time.time())
    assert not await launcher.is_alive(ourselves)
    await launcher.stop(ourselves, grace_s=0.1)


async def test_another_launcher_knows_a_process_after_the_clock_was_set(
    launcher: LocalLauncher, make_spec: Any, spawned: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await launcher.launch(make_spec("router"))
    spawned.append(handle.pid)
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) - 3600)
    assert await LocalLauncher(tmp_path / "logs").is_alive(handle)


async def test_environment_and_niceness_are_set(
    launcher: LocalLauncher, make_spec: Any, spawned: list[int], until: Any
) -> None:
    code = "import os, time; print(os.environ['COLOUR'], os.nice(0), flush=True); time.sleep(60)"
    handle = await launcher.launch(make_spec("router", code, environment={"COLOUR": "blue"}, niceness=1))
    spawned.append(handle.pid)
    await until(lambda: launcher.log_path("router").read_text(), what="its first word")
    assert launcher.log_path("router").read_text().split()[0] == "blue"
    assert psutil.Process(handle.pid).nice() == os.nice(0) + 1


async def test_a_process_is_bound_to_its_cores(launcher: LocalLauncher, make_spec: Any, spawned: list[int]) -> None:
    core = max(os.sched_getaffinity(0))
    handles = [await launcher.launch(make_spec(name, cores=cores)) for name, cores in (("a", (core,)), ("b", ()))]
    spawned.extend(handle.pid for handle in handles)
    assert [os.sched_getaffinity(handle.pid) for handle in handles] == [{core}, os.sched_getaffinity(0)]


async def test_logs_are_appended_and_rotated_when_they_are_large(
    launcher: LocalLauncher, make_spec: Any, until: Any
) -> None:
    async def run_to_end() -> None:
        handle = await launcher.launch(make_spec("router", "print('x')"))

        async def dead() -> bool:
            return not await launcher.is_alive(handle)

        await until(dead, what="its end")

    path = launcher.log_path("router")
    path.write_text("before\n")
    await run_to_end()
    assert path.read_text() == "before\nx\n"

    with path.open("ab") as log:
        log.truncate(51 * 1024**2)
    await run_to_end()
    assert path.read_text() == "x\n"
    assert path.with_suffix(".log.1").stat().st_size > 50 * 1024**2


async def test_a_process_outlives_the_one_that_launched_it(
    tmp_path: Path, spawned: list[int], launcher: LocalLauncher
) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from headway.controller.launchers.local import LocalLauncher
from headway.controller.process import ProcessSpec
spec = ProcessSpec(name="a", kind="a", command=(sys.executable, "-S", "-c", "import time; time.sleep(60)"))
handle = asyncio.run(LocalLauncher(Path({str(tmp_path)!r})).launch(spec))
print(handle.pid, handle.start)
"""
    run = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True)
    pid, start = run.stdout.decode().split()
    spawned.append(int(pid))
    handle = Handle(name="a", pid=int(pid), start=start, started_at_s=0.0)
    assert await launcher.is_alive(handle)
    await launcher.stop(handle, grace_s=5.0)
    assert not await launcher.is_alive(handle)
