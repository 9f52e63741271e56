"""Ranks as processes of this machine."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from socket import socket
from typing import Any

from headway.core.errors import UnavailableError
from headway.observe.parentage import end_with_parent
from headway.train.rank import rank_news
from headway.train.rendezvous import LOOPBACK, Rendezvous, listen
from headway.train.setup import Setup

_GRACE_S = 5.0
_END_S = 1.0


class LocalRanks:
    """Ranks are forked, as importing torch takes longer than all the rest; the process that forks them has not computed
    anything. See `Ranks`.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        fork = multiprocessing.get_context("fork")
        self._stop = fork.Event()
        self._ranks: list[tuple[BaseProcess, Connection]] = []
        listener, rendezvous = listen(LOOPBACK)
        with listener:
            for rank in range(len(setup.execution.ranks)):
                ours, theirs = fork.Pipe(duplex=False)
                given = (rank, theirs, rendezvous, listener)
                process = fork.Process(target=self._main, args=given, name=f"rank {rank}")
                process.start()
                theirs.close()
                self._ranks.append((process, ours))

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid or 0 for process, _ in self._ranks)

    def news(self) -> Iterator[tuple[int, dict[str, Any]]]:
        open_pipes = {pipe: rank for rank, (_, pipe) in enumerate(self._ranks)}
        while open_pipes:
            for pipe in wait(list(open_pipes)):
                assert isinstance(pipe, Connection)
                rank = open_pipes[pipe]
                try:
                    document = pipe.recv()
                except EOFError:
                    del open_pipes[pipe]
                    self._check_end(rank)
                    continue
                yield rank, document

    def death(self) -> UnavailableError | None:
        # A peer hears of a closed connection before the kernel says how its process has ended.
        until_s = time.monotonic() + _END_S
        left = {process.sentinel: (rank, process) for rank, (process, _) in enumerate(self._ranks)}
        while ended := wait(list(left), timeout=max(0.0, until_s - time.monotonic())):
            for rank, process in [left.pop(sentinel) for sentinel in ended if isinstance(sentinel, int)]:
                process.join()
                if (process.exitcode or 0) < 0:
                    return _died(rank, process.exitcode or 0)
        return None

    def stop(self) -> None:
        self._stop.set()

    def end(self) -> None:
        for process, _ in self._ranks:
            if process.is_alive():
                process.kill()
        for process, _ in self._ranks:
            process.join()

    def _check_end(self, rank: int) -> None:
        process, _ = self._ranks[rank]
        process.join(_GRACE_S)
        if process.exitcode:
            raise _died(rank, process.exitcode)

    def _main(self, rank: int, pipe: Connection, rendezvous: Rendezvous, listener: socket) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gang's owner decides
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_with_parent()
        world = len(self._setup.execution.ranks)
        if rank:
            listener.close()
        news = rank_news(
            self._setup,
            rank,
            meet=lambda: rendezvous.meet(rank, world, listener=None if rank else listener),
            should_stop=self._stop.is_set,
            num_threads=max(1, len(os.sched_getaffinity(0)) // world),
            place=rank,
        )
        for document in news:
            pipe.send(document)
        pipe.close()
        os._exit(0)  # threads of gloo that wait for a peer would be waited for


def _died(rank: int, code: int) -> UnavailableError:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return UnavailableError(f"Rank {rank} {how}.", hint="The run can begin again at its last checkpoint.")
