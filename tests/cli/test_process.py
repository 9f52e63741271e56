import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from headway.cli.process import end_all, identify, is_alive, terminate, wait_until_ended

_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
)


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_running_process_is_alive_and_a_zombie_is_not(child: "subprocess.Popen[bytes]") -> None:
    identity = identify(child.pid)
    assert is_alive(identity)
    child.kill()
    assert wait_until_ended(identity, timeout_s=5)
    assert not is_alive(identity)
    assert not is_alive(None)


def test_a_clock_that_is_set_changes_nothing(child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch) -> None:
    identity = identify(child.pid)
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) + 3600)
    assert is_alive(identity)
    assert identify(child.pid) == identity


def test_another_process_with_the_same_pid_is_left_alone(child: "subprocess.Popen[bytes]") -> None:
    before = replace(identify(child.pid), start="boot/1")
    assert not is_alive(before)
    terminate(before)
    end_all([before], grace_s=0.1)
    assert child.poll() is None


def test_a_process_that_does_not_listen_is_killed_after_its_grace() -> None:
    stubborn = subprocess.Popen([sys.executable, "-c", _STUBBORN], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    identity = identify(stubborn.pid)
    end_all([identity], grace_s=0.2)
    assert not is_alive(identity)
    stubborn.stdout.close()
