"""Ends vLLM's processes with the worker that started them, also where that was killed. vLLM loads it by name.

worker - engine process                     one device: the engine process computes, and has the tether
worker - engine process - rank, rank, ...   several: each rank has it, and ends the engine process too
"""

import os
import select
import signal
import threading
from contextlib import suppress

from headway.worker.vllm.environment import WORKER_VARIABLE


class Tether:
    """Becomes a base of vLLM's worker class, which is why the processes that compute import this module before they
    load anything."""


def _end_with(worker: int, parent: int) -> None:
    """Waits until one of both is gone, and ends this process, and the parent where that is still there."""
    with suppress(ProcessLookupError):
        ends = select.poll()
        for pid in {worker, parent}:
            ends.register(os.pidfd_open(pid), select.POLLIN)
        ends.poll()
    if parent != worker:
        with suppress(ProcessLookupError):
            os.kill(parent, signal.SIGKILL)
    os._exit(1)


threading.Thread(
    target=_end_with, args=(int(os.environ[WORKER_VARIABLE]), os.getppid()), name="tether", daemon=True
).start()
