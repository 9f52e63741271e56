"""The same GPT, 1F1B over two processes: as Headway trains it, and by torch.distributed.pipelining."""

import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from benchmarks.train.computing import write_run
from benchmarks.train.gpt import Captured, Gpt, Part, Size, loss_of
from benchmarks.train.memory import held_bytes
from benchmarks.train.ranks import told_by_ranks
from headway.core.execution.execution import Execution
from headway.core.program import Value
from headway.train.data import SyntheticData
from headway.train.setup import read_setup
from headway.train.trainer import Trainer

_NUM_RANKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRun:
    """Attributes:
    seconds, least_s: of an iteration, the median and the least.
    cpu_s: of both processes in the iteration that took least of it.
    peak_bytes: of each process, over all that it did.
    held_bytes: that torch's allocator gave each process at its peak; 0 where that was not counted.
    """

    seconds: float
    least_s: float
    cpu_s: float
    losses: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    held_bytes: tuple[int, ...]


def torch_pipeline(
    model: Gpt, size: Size, *, batch: int, micro_batch: int, steps: int, counts_memory: bool = False
) -> PeerRun:
    """Trains with plain SGD from the model's weights on the data of the same steps.

    Args:
        counts_memory: whether it is counted what is held, which takes time.
    """
    main = _counted if counts_memory else _timed
    with tempfile.TemporaryDirectory() as directory:
        store = f"{directory}/store"
        return _told(told_by_ranks(main, _NUM_RANKS, model, size, batch, micro_batch, steps, store))


def headway_pipeline(step: Captured, execution: Execution, *, steps: int) -> PeerRun:
    """Trains the same by a trainer a process."""
    with tempfile.TemporaryDirectory() as directory:
        run = write_run(Path(directory), step, execution, steps=steps + 1)  # the last one is saved
        return _told(told_by_ranks(_headway_rank, _NUM_RANKS, run, steps, f"{directory}/store"))


_Told = tuple[list[float], list[float], list[float], int, int]
"""Of a rank: seconds of each step, seconds of CPU, losses, its largest size, and what was held."""


def _told(told: Sequence[_Told]) -> PeerRun:
    """The first step does not count."""
    walls = [max(each) for each in zip(*(each[0] for each in told), strict=True)][1:]
    return PeerRun(
        seconds=median(walls),
        least_s=min(walls),
        cpu_s=min(sum(each) for each in list(zip(*(each[1] for each in told), strict=True))[1:]),
        losses=tuple(told[-1][2]),
        peak_bytes=tuple(peak for *_, peak, _ in told),
        held_bytes=tuple(held for *_, held in told),
    )


def _headway_rank(rank: int, pipe: Connection, run: Path, steps: int, store: str) -> None:
    torch.set_num_threads(1)
    trainer = Trainer(read_setup(run), rank, store=dist.FileStore(store, _NUM_RANKS), should_stop=lambda: False)
    walls, cpus, losses = [], [], []
    began_s = time.process_time()
    for report in islice(trainer.run(), steps):
        cpus.append(time.process_time() - began_s)
        walls.append(report.seconds)
        losses.append(report.loss)
        began_s = time.process_time()
    pipe.send((walls, cpus, losses, _largest_bytes(), 0))


def _largest_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _counted(
    rank: int, pipe: Connection, model: Gpt, size: Size, batch: int, micro_batch: int, steps: int, store: str
) -> None:
    with held_bytes() as held:
        told = _rank(rank, model, size, batch, micro_batch, steps, store)
    pipe.send((*told, held()))


def _timed(
    rank: int, pipe: Connection, model: Gpt, size: Size, batch: int, micro_batch: int, steps: int, store: str
) -> None:
    pipe.send((*_rank(rank, model, size, batch, micro_batch, steps, store), 0))


def _rank(
    rank: int, model: Gpt, size: Size, batch: int, micro_batch: int, steps: int, store: str
) -> tuple[list[float], list[float], list[float], int]:
    """Seconds, seconds of CPU and losses of the steps, and the process's largest size."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, _NUM_RANKS), rank=rank, world_size=_NUM_RANKS)
    half = size.num_layers // _NUM_RANKS
    part = Part(size, range(rank * half, (rank + 1) * half))
    whole = model.part.state_dict()
    part.load_state_dict({name: whole[_whole_name(name, rank * half)] for name in part.state_dict()})
    example = torch.zeros(micro_batch, size.seq, dtype=torch.long)
    given = example if rank == 0 else torch.zeros(micro_batch, size.seq, size.hidden)
    stage = PipelineStage(part, rank, _NUM_RANKS, torch.device("cpu"), input_args=(given,))
    schedule = Schedule1F1B(stage, batch // micro_batch, loss_fn=loss_of)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.01)
    value = Value(shape=(1, size.seq), stride=(size.seq, 1), dtype="int64", bound=size.vocabulary)
    data = SyntheticData({"tokens": value, "targets": value}, batch=batch, seed=0)
    walls, cpus, means = [], [], []
    for step in range(steps):
        examples = data.batch(step)
        dist.barrier()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(examples["tokens"])
        else:
            schedule.step(target=examples["targets"], losses=losses)
        optimizer.step()
        walls.append(time.monotonic() - began_s)
        cpus.append(time.process_time() - began_cpu_s)
        means.append(torch.stack(losses).mean().item() if losses else 0.0)
    dist.destroy_process_group()
    return walls, cpus, means, _largest_bytes()


def _whole_name(name: str, first: int) -> str:
    """The name that a part's parameter has in the whole model."""
    if not name.startswith("blocks."):
        return name
    _, number, rest = name.split(".", maxsplit=2)
    return f"blocks.{int(number) + first}.{rest}"
