"""The same steps in a whole stack: how often they come, and what processor time each process takes."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import psutil

from benchmarks.serve.outcome import Outcome
from benchmarks.serve.server import Server
from benchmarks.serve.workload import WorkloadSpec

Thread = tuple[str, int]
"""The module that a process runs, and the id of one of its threads."""

WORKER = "headway.worker"
SAMPLING_S = 0.5
COMPUTE, OTHER_THREADS = "worker: engine and its compute threads", "worker: event loop and sockets"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSteps:
    """The times of one burst's steps.

    Attributes:
        interval_s: between a step's tokens and the next one's at the client, while all sequences decode.
        cpu_s: of a step, what each process takes meanwhile; the worker's in two parts.
        output_tokens_per_s: of the whole burst.
    """

    interval_s: float
    cpu_s: dict[str, float]
    output_tokens_per_s: float


async def burst_through_stack(server: Server, spec: WorkloadSpec) -> StackSteps:
    """Send the burst to a running stack. Raises ValueError if a request fails or they don't overlap for long."""
    processes = server.processes()
    num_compute = int(openmp_environment(processes)["OMP_NUM_THREADS"])
    samples: list[CpuSample] = []
    sampler = asyncio.create_task(_sample(processes, samples))
    try:
        result = await server.client.run(spec)
    finally:
        sampler.cancel()
    faults = [outcome.error for outcome in result.outcomes if outcome.error]
    if faults:
        raise ValueError(f"{len(faults)} requests failed: {faults[0]}")
    num_tokens = sum(outcome.num_tokens for outcome in result.outcomes)
    interval_s = step_interval_s(result.outcomes)
    start_s, end_s = decode_span_s(result.outcomes)
    first, last = span_samples(samples, result.started_s + start_s, result.started_s + end_s)
    num_steps = (last.at_s - first.at_s) / interval_s
    spent_s = {thread: (seconds - first.cpu_s.get(thread, 0.0)) / num_steps for thread, seconds in last.cpu_s.items()}
    return StackSteps(
        interval_s=interval_s,
        cpu_s=cpu_by_part(spent_s, num_compute=num_compute),
        output_tokens_per_s=num_tokens / result.wall_s,
    )


@dataclass(frozen=True, slots=True)
class CpuSample:
    """What threads have taken so far.

    Attributes:
        at_s: by `time.perf_counter`.
    """

    at_s: float
    cpu_s: Mapping[Thread, float]


async def _sample(processes: Sequence[psutil.Process], samples: list[CpuSample]) -> None:
    while True:
        samples.append(CpuSample(time.perf_counter(), cpu_by_thread(processes)))
        await asyncio.sleep(SAMPLING_S)


def span_samples(samples: Sequence[CpuSample], start_s: float, end_s: float) -> tuple[CpuSample, CpuSample]:
    """The first and the last one in between; raises ValueError if there are not two."""
    within = [sample for sample in samples if start_s <= sample.at_s <= end_s]
    if len(within) < 2:
        raise ValueError(f"the requests all ran at once for {end_s - start_s:.1f} s only; send more sequences")
    return within[0], within[-1]


def decode_span_s(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """From when the last sequence has begun until the first one ends; raises ValueError if there is no such time."""
    start_s = max(outcome.token_times_s[0] for outcome in outcomes)
    end_s = min(outcome.token_times_s[-1] for outcome in outcomes)
    if start_s >= end_s:
        raise ValueError("the requests did not all run at once")
    return start_s, end_s


def step_interval_s(outcomes: Sequence[Outcome]) -> float:
    """Mean time between a sequence's tokens while all decode."""
    start_s, end_s = decode_span_s(outcomes)
    return (end_s - start_s) / fmean(_num_tokens_between(outcome, start_s, end_s) for outcome in outcomes)


def _num_tokens_between(outcome: Outcome, start_s: float, end_s: float) -> float:
    num_events = sum(start_s < time_s <= end_s for time_s in outcome.token_times_s)
    return num_events * outcome.num_tokens / len(outcome.token_times_s)


def cpu_by_thread(processes: Sequence[psutil.Process]) -> dict[Thread, float]:
    """Processor seconds so far, by the scheduler's own clock: the one that tools show counts in hundredths."""
    return {
        (module, int(task.name)): int((task / "schedstat").read_text().split()[0]) / 1e9
        for module, process in [(module_of(process), process) for process in processes]
        for task in Path(f"/proc/{process.pid}/task").iterdir()
    }


def cpu_by_part(cpu_s: Mapping[Thread, float], *, num_compute: int) -> dict[str, float]:
    """Added up by process; a worker's busiest threads are the ones that compute."""
    parts: defaultdict[str, float] = defaultdict(float)
    for (module, _), seconds in cpu_s.items():
        parts[module.removeprefix("headway.")] += seconds
    worker_s = sorted((seconds for (module, _), seconds in cpu_s.items() if module == WORKER), reverse=True)
    del parts["worker"]
    return {**parts, COMPUTE: sum(worker_s[:num_compute]), OTHER_THREADS: sum(worker_s[num_compute:])}


def module_of(process: psutil.Process) -> str:
    """`headway.gateway` of `python -m headway.gateway ...`; otherwise the program's name."""
    command = process.cmdline()
    return command[command.index("-m") + 1] if "-m" in command else process.name()


def openmp_environment(processes: Sequence[psutil.Process]) -> dict[str, str]:
    """What the stack's worker runs its threads with: the environment of the process that it was forked from.

    Its own cannot be read, since its title lies there.
    """
    (worker,) = (process for process in processes if module_of(process) == WORKER)
    parent = worker.parent()
    assert parent is not None, "the stack is running"
    return {name: value for name, value in parent.environ().items() if name in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT")}
