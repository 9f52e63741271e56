"""Collectives between processes of this machine, or its GPUs, over the transports that groups of workers use."""

import multiprocessing as mp
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from headway.core.errors import HeadwayError, InvalidArgumentError, UnavailableError
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import COLLECTIVES, Transport
from headway.runner.parallel.rendezvous import Rendezvous
from headway.worker.calibration.rank import layout_of, time_as_rank


def time_collectives(cells: Sequence[Cell]) -> Iterator[CellTiming]:
    """Times collectives; each group of ranks is started once for all its cells.

    Raises:
        UnavailableError: one of its processes ended.
        InvalidArgumentError: there is no GPU for each rank, or no memory that they can share.
    """
    for _, group in groupby(sorted(cells, key=_group), key=_group):
        yield from _time_in_group(tuple(group))


def _group(cell: Cell) -> tuple[str, bool, int]:
    """Sorts cells of equal layouts together."""
    collective = COLLECTIVES[cell.family]
    return collective.transport, collective.operation == "send", cell.extents[0]


def _time_in_group(cells: tuple[Cell, ...]) -> Iterator[CellTiming]:
    parallel, transport = layout_of(cells[0])
    if transport is Transport.NCCL and (num_gpus := torch.cuda.device_count()) < parallel.num_ranks:
        raise InvalidArgumentError(
            f"{cells[0].family} among {parallel.num_ranks} takes a GPU for each rank: there are {num_gpus} here.",
            hint="Name fewer with --ranks, or other families with --only. A worker of a stack sees its own GPU alone: "
            "stop the stack to time several.",
            field="only",
        )
    context = mp.get_context("spawn")
    lines = [context.Pipe() for _ in range(parallel.num_ranks)]
    processes = [
        context.Process(target=_run_rank, args=(line[1], rank, cells), daemon=True) for rank, line in enumerate(lines)
    ]
    try:
        for process, line in zip(processes, lines, strict=True):
            process.start()
            line[1].close()
        leader, *others = [line[0] for line in lines]
        address = _receive(leader, processes)
        for other in others:
            other.send(address)
        for _ in cells:
            yield _receive(leader, processes)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _receive(line: Connection, processes: Sequence[SpawnProcess]) -> Any:
    """Returns what the rank has sent; a HeadwayError that it sent is raised."""
    try:
        answer = line.recv()
    except EOFError:
        codes = ", ".join(str(process.exitcode) for process in processes)
        raise UnavailableError(
            f"A process that took part in a collective ended (exit codes {codes}).",
            hint="It may have run out of memory. Run it again: it goes on where it stopped.",
        ) from None
    if isinstance(answer, HeadwayError):
        raise answer
    return answer


def _run_rank(line: Connection, rank: int, cells: tuple[Cell, ...]) -> None:
    if rank == 0:
        rendezvous = Rendezvous.host("127.0.0.1")
        line.send(str(rendezvous))
    else:
        rendezvous = Rendezvous.at(line.recv())
    with suppress(BrokenPipeError):  # nobody wants to know any more
        try:
            for timing in time_as_rank(cells, rank=rank, rendezvous=rendezvous, gpu=rank):
                if rank == 0:
                    line.send(timing)
        except HeadwayError as error:
            if rank == 0:
                line.send(error)
