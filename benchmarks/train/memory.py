"""What ranks hold, as torch's allocator counts it: beside what was certified, and beside torch's own pipelines."""

import ctypes
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from benchmarks.train.computing import write_run
from benchmarks.train.gpt import Captured
from benchmarks.train.ranks import told_by_ranks
from headway.core.execution.certifier import certify
from headway.core.execution.execution import Execution
from headway.core.training_job import OptimizerSettings
from headway.train.setup import read_setup
from headway.train.trainer import Trainer

_NUM_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRow:
    """Attributes:
    zero: what ranks share of the parameters' state.
    held_bytes, certified_bytes: of each rank, at its peak.
    """

    method: str
    recomputes: bool
    zero: int
    held_bytes: tuple[int, ...]
    certified_bytes: tuple[int, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(held / most for held, most in zip(self.held_bytes, self.certified_bytes, strict=True))


def held_row(
    step: Captured,
    execution: Execution,
    *,
    method: str,
    recomputes: bool = False,
    zero: int = 0,
    optimizer: str = "sgd",
) -> HeldRow:
    """From before a rank has its parameters to the end of its second step."""
    settings = OptimizerSettings(name=optimizer, rate=0.01)
    with tempfile.TemporaryDirectory() as directory:
        run = write_run(Path(directory), step, execution, steps=_NUM_STEPS + 1, optimizer=settings)
        held = tuple(told_by_ranks(_rank, len(execution.ranks), run, f"{directory}/store"))
    certified = certify(execution).peak_bytes
    return HeldRow(method=method, recomputes=recomputes, zero=zero, held_bytes=held, certified_bytes=certified)


def _count_frees_of_all_threads() -> None:
    """Else torch's profiler misses what its own threads free, as gloo's do with tensors whose last user they are."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    ctypes.c_bool.in_dll(library, "FLAGS_caffe2_report_cpu_memory_usage").value = True


@contextmanager
def held_bytes() -> Iterator[Callable[[], int]]:
    """Gives what says, behind the block, how many bytes were held at its peak of all that was allocated in it."""
    found: list[int] = []
    _count_frees_of_all_threads()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield lambda: found[0]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    found.append(max(event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]"))


def _rank(rank: int, pipe: Connection, run: Path, store: str) -> None:
    torch.set_num_threads(1)
    setup = read_setup(run)
    world = len(setup.execution.ranks)
    with held_bytes() as peak:
        trainer = Trainer(setup, rank, store=dist.FileStore(store, world), should_stop=lambda: False)
        for _ in islice(trainer.run(), _NUM_STEPS):
            pass
    pipe.send(peak())
