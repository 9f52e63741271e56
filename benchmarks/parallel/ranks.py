"""Ranks as processes, each bound to one core and computing with one thread, and the work that they do."""

import multiprocessing as mp
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from benchmarks.parallel.burst import BLOCK_SIZE, Burst, Outcome, serve
from benchmarks.parallel.long_decode import LongDecode, Timing, time_decode
from benchmarks.parallel.volume import StepShape, Volumes, step_bytes
from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.listener import Listener
from headway.runner.parallel.rank_loop import run_rank
from headway.runner.parallel.rendezvous import Rendezvous
from headway.runner.shard_runner import ShardRunner

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWork:
    """The work that a worker and a group are compared by. Each burst is served twice: once to warm up."""

    directory: Path
    dtype: str
    bursts: tuple[Burst, ...] = ()
    decodes: tuple[LongDecode, ...] = ()

    def num_blocks(self, parallel: ParallelConfig) -> int:
        """Number of blocks of each rank's pool."""
        return -(-max(burst.num_blocks for burst in self.bursts) // parallel.cp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The result of a group's work.

    Attributes:
        warm_ups, outcomes: of each burst.
        timings: of each long decode.
        counted: what left each rank in all of that.
    """

    warm_ups: tuple[Outcome, ...]
    outcomes: tuple[Outcome, ...]
    timings: tuple[Timing, ...]
    counted: tuple[Volumes, ...]

    @property
    def shapes(self) -> list[StepShape]:
        parts = [outcome.shapes for outcome in (*self.warm_ups, *self.outcomes)]
        return list(chain(*parts, *(timing.shapes for timing in self.timings)))

    def derived(self, spec: ModelSpec, parallel: ParallelConfig) -> tuple[Volumes, ...]:
        """The bytes that should have left each rank."""
        return tuple(_derive(spec, parallel, rank, self.shapes) for rank in range(len(self.counted)))


def _derive(spec: ModelSpec, parallel: ParallelConfig, rank: int, shapes: list[StepShape]) -> Volumes:
    totals: Volumes = {}
    for shape, number in Counter(shapes).items():
        for key, num_bytes in step_bytes(spec, shape, parallel=parallel, rank=rank, block_size=BLOCK_SIZE).items():
            totals[key] = totals.get(key, 0) + number * num_bytes
    return totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job of one rank's process."""

    work: RankWork
    parallel: ParallelConfig
    rank: int
    core: int

    @property
    def num_blocks(self) -> int:
        return self.work.num_blocks(self.parallel)


def do_work(work: RankWork, parallel: ParallelConfig, *, cores: tuple[int, ...]) -> Service:
    """Starts the ranks, rank r on core r, and lets them do the work."""
    context = mp.get_context("spawn")
    jobs = [Job(work=work, parallel=parallel, rank=rank, core=cores[rank]) for rank in range(parallel.num_ranks)]
    lines = [context.Pipe() for _ in jobs]
    roles: list[Callable[[Job, Connection], None]] = [_lead, *[_follow] * (len(jobs) - 1)]
    processes = [
        context.Process(target=role, args=(job, line[1]), daemon=True)
        for role, job, line in zip(roles, jobs, lines, strict=True)
    ]
    for process, line in zip(processes, lines, strict=True):
        process.start()
        line[1].close()
    leader, *others = [line[0] for line in lines]
    address = leader.recv()
    for other in others:
        other.send(address)
    warm_ups, outcomes, timings, volumes = leader.recv()
    counted = (volumes, *(other.recv() for other in others))
    for process in processes:
        process.join(TIMEOUT_S)
    return Service(warm_ups=warm_ups, outcomes=outcomes, timings=timings, counted=counted)


def _lead(job: Job, line: Connection) -> None:
    checkpoint = _start(job)
    rendezvous = Rendezvous.host("127.0.0.1") if job.parallel.num_ranks > 1 else None
    line.send(str(rendezvous))
    group = _join(job, rendezvous)
    runner = ModelRunner(checkpoint, group=group, num_blocks=job.num_blocks, block_size=BLOCK_SIZE, num_threads=1)
    warm_ups, outcomes = (
        tuple(serve(burst, runner, num_blocks=job.num_blocks) for burst in job.work.bursts) for _ in range(2)
    )
    timings = tuple(time_decode(decode, runner) for decode in job.work.decodes)
    runner.close()
    line.send((warm_ups, outcomes, timings, _volumes(group)))


def _follow(job: Job, line: Connection) -> None:
    checkpoint = _start(job)
    group = _join(job, Rendezvous.at(line.recv()))
    runner = ShardRunner(checkpoint, group=group, num_blocks=job.num_blocks, block_size=BLOCK_SIZE, num_threads=1)
    run_rank(Listener(group), {0: runner})
    line.send(_volumes(group))


def _start(job: Job) -> Checkpoint:
    os.sched_setaffinity(0, {job.core})
    torch.set_num_threads(1)
    return read_checkpoint(job.work.directory, dtype=job.work.dtype)


def _join(job: Job, rendezvous: Rendezvous | None) -> RankGroup:
    if rendezvous is None:
        return RankGroup.single()
    return RankGroup.join(
        rendezvous.store,
        epoch=rendezvous.epoch,
        parallel=job.parallel,
        rank=job.rank,
        device=torch.device("cpu"),
        timeout_s=TIMEOUT_S,
    )


def _volumes(group: RankGroup) -> Volumes:
    return {key: count.num_bytes for key, count in group.traffic.totals().items() if count.num_bytes}
