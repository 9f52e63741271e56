"""Asking a stack while parts of it are killed or stopped."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Barrier, Thread
from typing import Any

import httpx

from tests.integration.stack import RunningStack, wait_for

LONG: dict[str, Any] = {"prompt": "line one goes", "max_tokens": 600}


def is_ready(stack: RunningStack) -> bool:
    return bool(stack.status()["controller"].get("ready"))


def worker_pids(stack: RunningStack) -> dict[str, int]:
    processes = stack.status()["controller"]["processes"]
    return {process["name"]: process["pid"] for process in processes if process["kind"] == "worker"}


def wait_until_renewed(stack: RunningStack, before: dict[str, int]) -> None:
    """Until these workers are other processes than before and everything serves."""

    def is_renewed() -> bool:
        return is_ready(stack) and all(worker_pids(stack)[name] != pid for name, pid in before.items())

    wait_for(is_renewed, timeout_s=60, every_s=0.2)
    stack.wait_until_ready()


def stream(stack: RunningStack, *, after_tokens: int, then: Callable[[], object]) -> tuple[str, str]:
    """(text, error) of the long answer, streamed; `then` is called once some tokens have come."""
    body = {"model": "tiny", "temperature": 0, "ignore_eos": True, "stream": True, **LONG}
    text, error, num_events, done = "", "", 0, False
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=body, timeout=120) as response:
        assert response.status_code == 200, response.read().decode()
        for line in response.iter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                error = event.get("error", {}).get("message", error)
                text += "".join(choice["text"] for choice in event.get("choices", ()))
                num_events += 1
                if num_events == after_tokens:
                    then()
    assert num_events > after_tokens or error, "it ended before anything happened"
    assert done or error, "the stream ended without a word"
    return text, error


def streams(stack: RunningStack, *, num: int, then: Callable[[], object]) -> list[tuple[str, str]]:
    """As many of them at once; `then` is called when all have begun."""
    begun = Barrier(num + 1)
    with ThreadPoolExecutor(num) as pool:
        running = [pool.submit(stream, stack, after_tokens=10, then=begun.wait) for _ in range(num)]
        begun.wait(timeout=60)
        then()
        return [each.result() for each in running]


def num_used_blocks(stack: RunningStack) -> int:
    """Of all groups; their sequences count, too."""
    result = stack.headway("kv", "top", "--json")
    assert result.returncode == 0, result.stderr
    fields = ("num_used_blocks", "num_running", "num_waiting")
    return sum(group[field] for group in json.loads(result.stdout) for field in fields)


def check(outcome: tuple[str, str], expected: str) -> None:
    """The whole answer, or a part of it and a clear word."""
    text, error = outcome
    if error:
        assert expected.startswith(text)
    else:
        assert text == expected


@contextmanager
def stopped(pid: int, *, for_s: float) -> Iterator[None]:
    """The process stands still for a while, which begins now; it need not live on."""

    def go_on() -> None:
        time.sleep(for_s)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    waiting = Thread(target=go_on)
    os.kill(pid, signal.SIGSTOP)
    waiting.start()
    yield
    waiting.join()
