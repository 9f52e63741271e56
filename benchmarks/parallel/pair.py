"""Runs a function in two processes as one group."""

import multiprocessing as mp
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from headway.core.parallel_config import ParallelConfig
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.rendezvous import Rendezvous

T = TypeVar("T")

PAIR = ParallelConfig(tp=2)
TIMEOUT_S = 60.0


def serve_pair(function: Callable[..., T], *arguments: Any) -> T:
    """Calls `function(axis, *arguments)` in both ranks, each bound to a core and computing with one thread.

    Returns what it gave at rank 0.
    """
    context = mp.get_context("spawn")
    lines = [context.Pipe() for _ in range(PAIR.num_ranks)]
    processes = [
        context.Process(target=_serve, args=(line[1], rank, function, arguments), daemon=True)
        for rank, line in enumerate(lines)
    ]
    for process in processes:
        process.start()
    leader, other = (line[0] for line in lines)
    other.send(leader.recv())
    result: T = leader.recv()
    for process in processes:
        process.join(TIMEOUT_S)
    return result


def _serve(line: Connection, rank: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    if rank == 0:
        rendezvous = Rendezvous.host("127.0.0.1")
        line.send(str(rendezvous))
    else:
        rendezvous = Rendezvous.at(line.recv())
    group = RankGroup.join(
        rendezvous.store,
        epoch=rendezvous.epoch,
        parallel=PAIR,
        rank=rank,
        device=torch.device("cpu"),
        timeout_s=TIMEOUT_S,
    )
    result = function(group.tensor, *arguments)
    if rank == 0:
        line.send(result)
    group.leave()
