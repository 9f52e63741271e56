"""Ranks as processes, each bound to one core and computing with one thread, and a burst that they serve."""

import multiprocessing as mp
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from benchmarks.engine.runner import ObservedRunner
from benchmarks.parallel.volume import StepShape
from headway.core.mesh import ParallelConfig
from headway.core.request import GenerationRequest, SamplingParams
from headway.engine.batch import StepBatch
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.listener import Listener
from headway.runner.parallel.rank_loop import run_rank
from headway.runner.parallel.rendezvous import Rendezvous
from headway.runner.shard_runner import ShardRunner
from headway.store.checkpoint import Checkpoint, read_checkpoint

BLOCK_SIZE = 16
TIMEOUT_S = 60.0
SEED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Requests of one length, all at once."""

    num_requests: int
    prompt_tokens: int
    output_tokens: int

    @property
    def num_blocks(self) -> int:
        per_request = -(-(self.prompt_tokens + self.output_tokens) // BLOCK_SIZE)
        return self.num_requests * (per_request + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One burst.

    Attributes:
        prefill_s, decode_s: of steps with prompt tokens in them, and of those without.
        collective_s: of both, spent in collectives by the leader, waiting for the other ranks included.
        shapes: of its steps.
        token_ids: of every sequence.
    """

    prefill_s: float
    decode_s: float
    collective_s: float
    shapes: tuple[StepShape, ...]
    token_ids: tuple[tuple[int, ...], ...]

    def tokens_per_s(self, burst: Burst) -> float:
        return burst.num_requests * burst.output_tokens / (self.prefill_s + self.decode_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a group did.

    Attributes:
        warm_ups, outcomes: of each burst, which was served twice.
        num_bytes: that left rank 1 in all of them; 0 for one worker.
    """

    warm_ups: tuple[Outcome, ...]
    outcomes: tuple[Outcome, ...]
    num_bytes: int

    @property
    def shapes(self) -> list[StepShape]:
        return [shape for outcome in (*self.warm_ups, *self.outcomes) for shape in outcome.shapes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process is to be."""

    directory: Path
    dtype: str
    parallel: ParallelConfig
    rank: int
    core: int
    bursts: tuple[Burst, ...]

    @property
    def num_blocks(self) -> int:
        return max(burst.num_blocks for burst in self.bursts)


def serve_bursts(
    directory: Path, *, dtype: str, parallel: ParallelConfig, bursts: tuple[Burst, ...], cores: tuple[int, ...]
) -> Service:
    """Starts the ranks, rank r on core r, and gives each burst to them twice: once to warm up."""
    context = mp.get_context("spawn")
    jobs = [
        Job(directory=directory, dtype=dtype, parallel=parallel, rank=rank, core=cores[rank], bursts=bursts)
        for rank in range(parallel.num_ranks)
    ]
    lines = [context.Pipe() for _ in jobs]
    roles: list[Callable[[Job, Connection], None]] = [_lead, *[_follow] * (len(jobs) - 1)]
    processes = [
        context.Process(target=role, args=(job, line[1]), daemon=True)
        for role, job, line in zip(roles, jobs, lines, strict=True)
    ]
    for process in processes:
        process.start()
    leader, *others = [line[0] for line in lines]
    address = leader.recv()
    for other in others:
        other.send(address)
    warm_ups, outcomes = leader.recv()
    num_bytes = others[0].recv() if others else 0
    for process in processes:
        process.join(TIMEOUT_S)
    return Service(warm_ups=warm_ups, outcomes=outcomes, num_bytes=num_bytes)


def _lead(job: Job, line: Connection) -> None:
    checkpoint = _start(job)
    rendezvous = Rendezvous.host("127.0.0.1") if job.parallel.num_ranks > 1 else None
    line.send(str(rendezvous))
    group = _join(job, rendezvous)
    runner = ModelRunner(checkpoint, group=group, num_blocks=job.num_blocks, block_size=BLOCK_SIZE, num_threads=1)
    warm_ups = tuple(_serve(burst, runner, checkpoint, group) for burst in job.bursts)
    outcomes = tuple(_serve(burst, runner, checkpoint, group) for burst in job.bursts)
    runner.close()
    line.send((warm_ups, outcomes))


def _follow(job: Job, line: Connection) -> None:
    checkpoint = _start(job)
    group = _join(job, Rendezvous.at(line.recv()))
    runner = ShardRunner(checkpoint, group=group, num_blocks=job.num_blocks, block_size=BLOCK_SIZE, num_threads=1)
    run_rank(Listener(group), runner)
    line.send(sum(count.num_bytes for count in group.traffic.totals().values()))


def _start(job: Job) -> Checkpoint:
    os.sched_setaffinity(0, {job.core})
    torch.set_num_threads(1)
    return read_checkpoint(job.directory, dtype=job.dtype)


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


def _serve(burst: Burst, runner: ModelRunner, checkpoint: Checkpoint, group: RankGroup) -> Outcome:
    vocab_size = checkpoint.spec.vocab_size
    config = EngineConfig(
        num_blocks=burst.num_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=burst.prompt_tokens + burst.output_tokens,
        max_num_seqs=burst.num_requests,
        vocab_size=vocab_size,
        enable_prefix_cache=False,
    )
    shapes: list[StepShape] = []
    observed = ObservedRunner(runner, observe=lambda batch: shapes.append(_shape(batch)))
    engine = Engine(config, runner=observed, clock=time.perf_counter)
    generator = np.random.default_rng(SEED)
    for number in range(burst.num_requests):
        prompt = generator.integers(3, vocab_size, burst.prompt_tokens).tolist()
        sampling = SamplingParams(max_tokens=burst.output_tokens, temperature=0.0, ignore_eos=True)
        engine.submit(
            GenerationRequest(request_id=str(number), model="", prompt_token_ids=tuple(prompt), sampling=sampling)
        )
    prefill_s = decode_s = 0.0
    collective_s = _collective_s(group)
    token_ids: dict[str, list[int]] = {str(number): [] for number in range(burst.num_requests)}
    while engine.has_work:
        started_s = time.perf_counter()
        for output in engine.step():
            token_ids[output.request_id] += output.token_ids
        step_s = time.perf_counter() - started_s
        if engine.stats().num_prefill_tokens:
            prefill_s += step_s
        else:
            decode_s += step_s
    return Outcome(
        prefill_s=prefill_s,
        decode_s=decode_s,
        collective_s=_collective_s(group) - collective_s,
        shapes=tuple(shapes),
        token_ids=tuple(map(tuple, token_ids.values())),
    )


def _collective_s(group: RankGroup) -> float:
    return sum(count.seconds for count in group.traffic.totals().values())


def _shape(batch: StepBatch) -> StepShape:
    return StepShape(num_tokens=batch.num_tokens, num_wanted=sum(share.samples for share in batch.sequences))
