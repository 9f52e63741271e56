"""Groups of real processes, forked from one that has loaded torch already."""

import errno
import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from headway.core.parallel_config import ParallelConfig
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.rendezvous import Rendezvous

DIED: Final = "died"
"""The result of a rank whose process ended by itself."""

_processes = multiprocessing.get_context("forkserver")
# Ranks that import a test's module would each import transformers.
_processes.set_forkserver_preload(
    ["pytest", "headway.engine.engine", "headway.runner.model_runner", "tests.checkpoints"]
)


def run_ranks(
    ranks: int | ParallelConfig,
    function: Callable[..., Any],
    *arguments: Any,
    ranks_without_memory: tuple[int, ...] = (),
    collective_timeout_s: float = 8.0,
    timeout_s: float = 100.0,
) -> list[Any]:
    """Calls `function(group, *arguments)` in the ranks of a fresh group; what it returned, by rank.

    Args:
        ranks: the group's axes, or how many tensor-parallel ranks.
        ranks_without_memory: that cannot have or find any to share with others.

    Fails with the traceback of a rank that raised. No process outlives the call.
    """
    deadline_s = time.monotonic() + timeout_s
    parallel = ParallelConfig(tp=ranks) if isinstance(ranks, int) else ranks
    pipes = [_processes.Pipe() for _ in range(parallel.num_ranks)]
    processes: list[BaseProcess] = []
    try:
        rendezvous = ""
        for rank, (own, theirs) in enumerate(pipes):
            has_memory = rank not in ranks_without_memory
            place = (parallel, rank, collective_timeout_s, has_memory)
            order = (rendezvous, place, function, arguments)
            processes.append(_processes.Process(target=_serve, args=(theirs, *order), daemon=True))
            processes[-1].start()
            theirs.close()
            if rank == 0:
                rendezvous = _receive(own, deadline_s)
        results = [_receive(own, deadline_s) for own, _ in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    failures = [result.text for result in results if isinstance(result, Failure)]
    assert not failures, "\n".join(failures)
    return results


class Failure:
    """A rank's traceback."""

    def __init__(self, text: str) -> None:
        self.text = text


def _receive(connection: Connection, deadline_s: float) -> Any:
    if not connection.poll(max(deadline_s - time.monotonic(), 0.0)):
        return Failure("a rank gave no result in time")
    try:
        return pickle.loads(connection.recv_bytes())
    except EOFError:
        return DIED


def _serve(
    connection: Connection,
    rendezvous_text: str,
    place: tuple[ParallelConfig, int, float, bool],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    parallel, rank, collective_timeout_s, has_memory = place
    try:
        rendezvous = Rendezvous.at(rendezvous_text) if rendezvous_text else Rendezvous.host("127.0.0.1")
        if rank == 0:
            _send(connection, str(rendezvous))
        with pytest.MonkeyPatch.context() as patch:
            if not has_memory:
                patch.setattr(os, "posix_fallocate", _refuse)
                patch.setattr(Path, "readlink", _refuse)
            group = RankGroup.join(
                rendezvous.store,
                epoch=rendezvous.epoch,
                parallel=parallel,
                rank=rank,
                device=torch.device("cpu"),
                timeout_s=collective_timeout_s,
            )
        result = function(group, *arguments)
        group.leave()
    except Exception:  # noqa: BLE001 - handed to the test
        result = Failure(traceback.format_exc())
    _send(connection, result)


def _refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no memory to share")


def _send(connection: Connection, result: Any) -> None:
    # As bytes: a tensor would go as a file that this process must stay alive to share.
    connection.send_bytes(pickle.dumps(result))
