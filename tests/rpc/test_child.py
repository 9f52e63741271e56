"""Calls to child processes: answers, faults, and an end in any case."""

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.core.errors import DeadlineExceededError, NotFoundError, UnavailableError
from headway.rpc.child import call_child

CHILD = """
import json, os, signal, sys, time
request = json.load(sys.stdin)
open("pid", "w").write(str(os.getpid()))
print(json.dumps({"pid": os.getpid(), "request": request}), flush=True)
match request["then"]:
    case "sleep":
        time.sleep(600)
    case "die":
        os.kill(os.getpid(), signal.SIGKILL)
    case "fail":
        sys.exit("it went wrong")
    case "fault":
        print(json.dumps({"error": {"code": "not_found", "message": "No x.", "hint": "Make one.", "field": "x"}}))
"""


@pytest.fixture(autouse=True)
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "childmodule.py").write_text(CHILD)
    monkeypatch.chdir(tmp_path)


async def answers_of(then: str, *, deadline_s: float = 60) -> list[dict[str, Any]]:
    return [answer async for answer in call_child("childmodule", {"then": then}, deadline_s=deadline_s)]


async def test_answers_come_in_order_until_the_child_ends() -> None:
    (answer,) = await answers_of("end")
    assert answer["request"] == {"then": "end"}


async def test_a_fault_is_raised_as_it_was() -> None:
    with pytest.raises(NotFoundError) as caught:
        await answers_of("fault")
    assert (caught.value.message, caught.value.hint, caught.value.field) == ("No x.", "Make one.", "x")


async def test_a_child_that_dies_is_told_with_what_it_said_last() -> None:
    with pytest.raises(UnavailableError, match=r"ended with status 1. it went wrong"):
        await answers_of("fail")
    with pytest.raises(UnavailableError, match=r"killed by SIGKILL.*memory"):
        await answers_of("die")


async def test_a_child_past_its_deadline_is_killed(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceededError, match="longer deadline"):
        await answers_of("sleep", deadline_s=5)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_a_caller_that_leaves_ends_the_child() -> None:
    async with aclosing(call_child("childmodule", {"then": "sleep"}, deadline_s=60)) as answers:
        answer = await anext(answers)
        assert psutil.pid_exists(answer["pid"])
    assert not psutil.pid_exists(answer["pid"])


async def test_a_child_that_does_not_read_its_request_is_killed_at_its_deadline(tmp_path: Path) -> None:
    (tmp_path / "childmodule.py").write_text("import time\ntime.sleep(600)")
    calling = asyncio.all_tasks()
    with pytest.raises(DeadlineExceededError):
        await answers_of("sleep" * 1_000_000, deadline_s=1)
    assert asyncio.all_tasks() == calling


LISTENER = """
import json, os, sys
request = json.loads(sys.stdin.readline())
print(json.dumps({"pid": os.getpid(), "request": request}), flush=True)
line = sys.stdin.readline()
print(json.dumps({"was_asked": line == chr(10)}), flush=True)
"""


async def test_a_child_is_asked_to_stop_and_ends_with_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "childmodule.py").write_text(LISTENER)
    stop = asyncio.Event()
    answers = []
    async with aclosing(call_child("childmodule", {"then": "listen"}, deadline_s=None, stop=stop)) as told:
        async for answer in told:
            answers.append(answer)
            stop.set()
    assert answers[0]["request"] == {"then": "listen"}
    assert answers[1:] == [{"was_asked": True}]


PARENT = """
import asyncio
from headway.rpc.child import call_child

async def main():
    async for answer in call_child("childmodule", {"then": "listen"}, deadline_s=None, stop=asyncio.Event()):
        print(answer["pid"], flush=True)

asyncio.run(main())
"""


async def test_the_input_of_a_child_that_may_be_asked_to_stop_ends_with_its_caller(tmp_path: Path) -> None:
    (tmp_path / "childmodule.py").write_text(LISTENER)
    caller = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE)
    assert caller.stdout is not None
    child = psutil.Process(int(await caller.stdout.readline()))
    caller.kill()
    await caller.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, [child], 20)
    assert alive == []
