"""`headway profile hardware` on the workers of a real stack, some of which are killed meanwhile."""

import json
import signal
import subprocess
import sys
from typing import Any

import psutil
from redis import Redis

from headway.store.schema import HARDWARE_TIMINGS
from tests.integration.stack import RunningStack, wait_for

_ONE = ("--only", "dispatch", "--only", "relu", "--share", "1")
_BETWEEN = ("--only", "all_reduce", "--only", "all_reduce_gloo", "--share", "1")


def num_timed(stack: RunningStack) -> int:
    with Redis.from_url(stack.stack.redis_url) as redis:
        keys = redis.scan_iter(match=HARDWARE_TIMINGS.key("headway", "*"))
        return sum(int(redis.hlen(key)) for key in keys)


def calibrating(stack: RunningStack) -> list[psutil.Process]:
    """The processes that time cells beside the stack's workers."""
    return [
        child
        for name in ("worker-0", "worker-1")
        for child in psutil.Process(stack.pid(name)).children()
        if "headway.worker.calibration" in child.cmdline()
    ]


def measuring(stack: RunningStack, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "headway.cli", "profile", "hardware", *arguments, "--json"]
    return subprocess.Popen(
        [*command, "--state-dir", str(stack.state_dir)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_killed_workers_and_a_killed_profiler_cost_only_what_was_running(pair: RunningStack) -> None:
    with measuring(pair, *_ONE, "--worker", "worker-1") as command:
        wait_for(lambda: num_timed(pair) >= 2, timeout_s=120)
        pair.kill("profiler")
        pair.kill("worker-0")
        pair.kill("worker-1")
        output, complaints = command.communicate(timeout=120)
        assert command.returncode == 0, complaints.decode()
    profile: dict[str, Any] = json.loads(output)
    families = {timing["cell"]["family"] for timing in profile["timings"]}
    assert families - {"all_reduce", "all_reduce_gloo"} == {"dispatch", "relu"}  # another test times those
    hardware = profile["machine"]["hardware"]
    (known,) = json.loads(pair.headway("profile", "list", "--json").stdout)[-1:]
    assert known["machine"] == profile["machine"]
    assert (known["num_timings"], known["is_stale"]) == (len(profile["timings"]), False)
    shown = json.loads(pair.headway("profile", "show", known["profile_id"], "--json").stdout)
    assert shown["timings"] == profile["timings"]
    predicted = pair.headway(
        "profile", "model", "zoo:gpt3-1b-small", "--capture-only", "--hardware", known["profile_id"]
    )
    assert "not complete" in predicted.stderr  # it was found, and lacks what was not asked for
    assert hardware["num_threads"] == 1


def test_collectives_are_timed_between_workers_over_both_transports(pair: RunningStack) -> None:
    result = pair.headway("profile", "hardware", *_BETWEEN, "--json", timeout_s=300)
    assert result.returncode == 0, result.stderr
    links = {link["collective"]: link for link in json.loads(result.stdout)["links"]}
    assert links.keys() >= {"all_reduce", "all_reduce_gloo"}
    assert all(link["num_ranks"] == 2 and link["bytes_per_s"] > 0 for link in links.values())
    view = pair.headway("profile", "hardware", *_BETWEEN)
    assert "shared memory" in view.stdout
    assert "gloo on one machine" in view.stdout


def test_ctrl_c_ends_what_times(pair: RunningStack) -> None:
    with measuring(pair, "--only", "matmul", "--fresh", "--share", "1") as command:
        wait_for(lambda: len(calibrating(pair)) > 0, timeout_s=60)
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=30)
        assert command.returncode != 0
    wait_for(lambda: calibrating(pair) == [])


def test_what_cannot_be_is_refused_with_a_hint(pair: RunningStack) -> None:
    for arguments, words in (
        (("--worker", "worker-9"), "No worker 'worker-9'"),
        (("--share", "0"), "share must be"),
        (("--only", "matmull"), "'matmull'"),
        (("--threads", "2"), "threads of their own"),
    ):
        result = pair.headway("profile", "hardware", *arguments)
        assert result.returncode == 1, arguments
        assert words in result.stderr
        assert "hint:" in result.stderr
        assert "Traceback" not in result.stderr
