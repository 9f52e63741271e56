"""Collectives as one of the ranks that take part sees them."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median, quantiles

import torch
import torch.distributed as dist

from headway.core.errors import InvalidArgumentError, UnavailableError
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import COLLECTIVES, Transport
from headway.core.parallel_config import ParallelConfig
from headway.engine.batch import RunnerLostError
from headway.runner.parallel.communicator import Communicator
from headway.runner.parallel.fault import reason
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.rendezvous import Rendezvous
from headway.worker.calibration.timer import Timer

_TIMEOUT_S = 60.0
_BYTES_IN_ALL = 1 << 26
_MIN_CALLS, _MAX_CALLS = 12, 200


def layout_of(cell: Cell) -> tuple[ParallelConfig, Transport]:
    """The group that times it; cells of equal layouts can share one."""
    transport = COLLECTIVES[cell.family].transport
    # NCCL takes one message after the other between two ranks: both ways at once go as an exchange along an axis.
    is_line = COLLECTIVES[cell.family].operation == "send" and transport is not Transport.NCCL
    return ParallelConfig(pp=2) if is_line else ParallelConfig(tp=cell.extents[0]), transport


def time_as_rank(cells: Sequence[Cell], *, rank: int, rendezvous: Rendezvous, gpu: int = 0) -> Iterator[CellTiming]:
    """Meets the others and takes part in each cell; yields it at every rank.

    Args:
        cells: of one layout; the same at all ranks.
        gpu: number of the one that holds this rank's tensors, where NCCL carries them.

    Raises:
        UnavailableError: another rank did not come, or is gone.
        InvalidArgumentError: the ranks cannot share memory, or share a GPU.
    """
    parallel, transport = layout_of(cells[0])
    device = _take_gpu(gpu) if transport is Transport.NCCL else _take_core(rank)
    group = RankGroup.join(
        rendezvous.store,
        epoch=rendezvous.epoch,
        parallel=parallel,
        rank=rank,
        device=device,
        timeout_s=_TIMEOUT_S,
        may_share_memory=transport is Transport.SHARED_MEMORY,
    )
    try:
        if transport is Transport.NCCL:
            check_gpus(_gpus_of(group, device))
        if transport is Transport.SHARED_MEMORY and not _axis(group).shares_memory:
            raise InvalidArgumentError(
                f"These processes cannot share memory, which {cells[0].family} is timed through.",
                hint=f"Name other families with --only, such as {cells[0].family}_gloo.",
                field="only",
            )
        for cell in cells:
            seconds, spread = _time(_call_of(cell, group, device), device=device, num_bytes=cell.extents[1])
            yield CellTiming(cell=cell, seconds=seconds, spread=spread)
    except RunnerLostError as error:
        raise UnavailableError(f"A rank is gone: {error}", hint="Run it again: it goes on where it stopped.") from error
    finally:
        group.leave()


def check_gpus(gpus: Sequence[str]) -> None:
    """InvalidArgumentError where two ranks, whose GPUs these are, have the same one."""
    for rank, gpu in enumerate(gpus):
        if (other := gpus.index(gpu)) < rank:
            raise InvalidArgumentError(
                f"Ranks {other} and {rank} are on one GPU ({gpu}), and NCCL takes one for each rank.",
                hint="Start each worker with a GPU of its own in CUDA_VISIBLE_DEVICES, or leave collectives out: "
                "--ranks 1.",
                field="ranks",
            )


def _gpus_of(group: RankGroup, device: torch.device) -> list[str]:
    """Returns the UUID of each rank's GPU, by rank."""
    gpus = [""] * group.parallel.num_ranks
    try:
        dist.all_gather_object(gpus, str(torch.cuda.get_device_properties(device).uuid), group=group.control)
    except RuntimeError as error:
        raise RunnerLostError(reason(error)) from error
    return gpus


def _take_gpu(number: int) -> torch.device:
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    return device


def _take_core(rank: int) -> torch.device:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    return torch.device("cpu")


def _time(call: Callable[[], object], *, device: torch.device, num_bytes: int) -> tuple[float, float]:
    """The upper bound of the fastest tenth, and how far the median is above: neighbours only ever slow it down."""
    wait = Timer.of(device, num_threads=1).wait
    call()
    wait()
    durations_s = []
    for _ in range(min(_MAX_CALLS, max(_MIN_CALLS, _BYTES_IN_ALL // num_bytes))):
        started_s = time.perf_counter()
        call()
        wait()
        durations_s.append(time.perf_counter() - started_s)
    tenth_s = quantiles(durations_s, n=10)[0]
    return tenth_s, max(0.0, median(durations_s) / tenth_s - 1)


def _call_of(cell: Cell, group: RankGroup, device: torch.device) -> Callable[[], object]:
    operation = COLLECTIVES[cell.family].operation
    dtype: torch.dtype = getattr(torch, cell.dtype)
    num_elements = max(1, cell.extents[1] // dtype.itemsize)
    x = torch.zeros(num_elements, dtype=dtype, device=device)
    if group.parallel.pp == 2:
        return _bounce(group, x)
    axis = _axis(group)
    if operation == "send":
        return lambda: axis.all_to_all([x, x], shapes=[x.shape, x.shape], site="calibration")
    if operation == "all_reduce":
        return lambda: axis.all_reduce(x, site="calibration")
    part = torch.ones(max(1, num_elements // axis.size), dtype=dtype, device=device)
    if operation == "all_gather":
        return lambda: axis.all_gather(part, sizes=[len(part)] * axis.size, site="calibration")
    parts, shapes = [part.clone() for _ in range(axis.size)], [part.shape] * axis.size
    if operation == "all_to_all":
        return lambda: axis.all_to_all(parts, shapes=shapes, site="calibration")
    return lambda: torch.stack(axis.all_to_all(parts, shapes=shapes, site="calibration")).sum(dim=0)


def _axis(group: RankGroup) -> Communicator:
    axis = group.tensor
    assert isinstance(axis, Communicator)
    return axis


def _bounce(group: RankGroup, x: torch.Tensor) -> Callable[[], object]:
    """There and back between two stages, as fast as the line allows."""
    link = group.next or group.previous
    assert link is not None

    def call() -> None:
        link.expect(tuple(x.shape), dtype=x.dtype, device=x.device)
        link.send(x)
        link.receive()

    return call
