"""Runs one search in a process of its own: reads an order on standard input, writes progress and the result on standard
output. A further line asks it to stop; the end of the input says that nobody waits for it any more."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import IO, Any

from headway.core.codec import from_document, to_document
from headway.core.errors import HeadwayError, InternalError
from headway.core.fault import Fault
from headway.core.search_progress import SearchProgress
from headway.planner.jobs.child import SearchAnswer, SearchOrder
from headway.planner.jobs.kinds import search_of


def main() -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
        try:
            order = from_document(SearchOrder, json.loads(sys.stdin.readline()))
            _answer(answers, _search(order, answers))
        except HeadwayError as error:
            _answer(answers, {"error": Fault.of(error)})
        except Exception as error:  # noqa: BLE001 - root of the process
            fault = InternalError(
                f"The search failed: {type(error).__name__}: {error}", hint="This is a fault of Headway."
            )
            _answer(answers, {"error": Fault.of(fault)})


class StopWish:
    """Tells a search when to stop: when that is asked for, or its time is up.

    Attributes:
        was_heard: whether the search heard that somebody asked for it.
    """

    def __init__(self, time_limit_s: float | None) -> None:
        self.was_heard = False
        self._asked = threading.Event()
        self._ends_at_s = None if time_limit_s is None else time.monotonic() + time_limit_s
        threading.Thread(target=self._listen, daemon=True).start()

    def __call__(self) -> bool:
        if self._asked.is_set():
            self.was_heard = True
            return True
        return self._ends_at_s is not None and time.monotonic() >= self._ends_at_s

    def _listen(self) -> None:
        while sys.stdin.readline():
            self._asked.set()
        os.killpg(0, signal.SIGKILL)  # the processes that search with this one, too


def _search(order: SearchOrder, answers: IO[str]) -> SearchAnswer:
    began_s, stop = time.monotonic(), StopWish(order.work.time_limit_s)

    def report(progress: SearchProgress) -> None:
        _answer(answers, SearchAnswer(progress=replace(progress, elapsed_s=time.monotonic() - began_s)))

    run = search_of(order.work.kind)
    result = run(order.work.request, report=report, should_stop=stop, resume=order.resume)
    return SearchAnswer(result=result, was_stopped=stop.was_heard)


def _answer(answers: IO[str], value: Any) -> None:
    answers.write(json.dumps(to_document(value)) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
