"""Ranks as processes that nothing was computed in before."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

_PRELOADED = ["headway.train.trainer", "torch.profiler"]


def told_by_ranks(main: Callable[..., None], num_ranks: int, *arguments: Any) -> list[Any]:
    """What each rank sends, in the order of the ranks.

    They are forked from a server that has imported torch and computed nothing: forked from a process that computes, a
    rank can wait forever for a lock that one of its threads held.

    Args:
        main: called in a process a rank with its number, the pipe that it sends to, and the arguments.

    Raises:
        RuntimeError: a rank ended without a word; the others are ended.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOADED)
    processes: list[BaseProcess] = []
    waited_for: dict[Connection, int] = {}
    for rank in range(num_ranks):
        ours, theirs = server.Pipe(duplex=False)
        process = server.Process(target=main, args=(rank, theirs, *arguments), name=f"rank {rank}")
        process.start()
        theirs.close()
        processes.append(process)
        waited_for[ours] = rank
    told: dict[int, Any] = {}
    try:
        while waited_for:
            for pipe in wait(list(waited_for)):
                assert isinstance(pipe, Connection)
                rank = waited_for.pop(pipe)
                told[rank] = _told(pipe, rank)
    finally:
        for each in processes:
            each.kill()
            each.join()
    return [told[rank] for rank in range(num_ranks)]


def _told(pipe: Connection, rank: int) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        raise RuntimeError(f"Rank {rank} ended before it was done; what it printed says why.") from None
