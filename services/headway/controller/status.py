"""The stack as it is. Field names are those of the messages of ControllerService."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.controller.worker import Worker
from headway.core.cluster import Hardware
from headway.core.line import QueuePolicy
from headway.core.load_order import LoadOrder

_MOST_NAMED = 4
"""Models that are waited for, by name; of more only the number is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One process, bound to `cores`, if any; `state` is 'starting', 'ready', 'restarting', 'draining' or 'stopped'."""

    name: str
    kind: str
    pid: int
    state: str
    endpoint: str = ""
    metrics_endpoint: str = ""
    num_restarts: int = 0
    started_at_s: float = 0.0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A worker; `rank` is its place in its group of `num_ranks`, `model` the first of its models."""

    worker_id: str
    group_id: str
    model: str
    state: str
    hardware: Hardware
    rank: int = 0
    num_ranks: int = 1
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether everything runs and every group has its model; else what is being waited for."""

    ready: bool
    waiting_for: str
    progress: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StackStatus:
    """The stack as it is; `asleep` are models that are loaded when they are asked for."""

    processes: tuple[ProcessStatus, ...]
    workers: tuple[WorkerStatus, ...]
    plan_id: str
    ready: bool
    waiting_for: str
    progress: float
    answer_overhead_s: float
    queue_policy: QueuePolicy
    faults: tuple[str, ...] = ()
    asleep: tuple[str, ...] = ()


def assess_readiness(
    processes: tuple[ProcessStatus, ...],
    *,
    wanted: Mapping[str, Sequence[LoadOrder]] | None,
    workers: Mapping[str, Worker],
) -> Readiness:
    """Half of the way is starting processes, the other half loading models.

    Args:
        wanted: the plan's works by worker; None before there is a plan.
    """
    pids = {process.name: process.pid for process in processes}
    missing = [process.name for process in processes if process.state in ("starting", "restarting")]
    started = 1 - len(missing) / max(1, len(processes))
    if wanted is None:
        waiting_for = f"{', '.join(missing)} to start" if missing else "a plan"
        return Readiness(ready=False, waiting_for=waiting_for, progress=started / 2)
    fractions = {
        work: min(_fraction(work, workers.get(worker_id), pid=pids.get(worker_id)) for worker_id in work.worker_ids)
        for work in dict.fromkeys(work for works in wanted.values() for work in works)
    }
    loading = [
        f"{work.model} to load on {', '.join(work.worker_ids)} ({fraction:.0%})"
        for work, fraction in fractions.items()
        if fraction < 1
    ]
    loaded = sum(fractions.values()) / max(1, len(fractions))
    named = loading[:_MOST_NAMED] + ([f"{len(loading) - _MOST_NAMED} more"] if len(loading) > _MOST_NAMED else [])
    waiting = ([f"{', '.join(missing)} to start"] if missing else []) + named
    return Readiness(ready=not waiting, waiting_for="; ".join(waiting), progress=(started + loaded) / 2)


def worker_status(worker: Worker) -> WorkerStatus:
    member, work = worker.member, next(iter(worker.works), None)
    return WorkerStatus(
        worker_id=member.member_id,
        group_id=member.group_id,
        model=next(iter(member.models), ""),
        models=member.models,
        state=member.state if worker.is_present else "lost",
        hardware=worker.hardware,
        rank=0 if work is None else work.worker_ids.index(member.member_id),
        num_ranks=1 if work is None else len(work.worker_ids),
    )


def _fraction(wanted: LoadOrder, worker: Worker | None, *, pid: int | None) -> float:
    """How much of its part of a work a worker has loaded. One that was restarted has nothing until it is met again."""
    if worker is None or not worker.is_present or worker.member.pid != (pid or worker.member.pid):
        return 0.0
    if wanted in worker.works:
        return 1.0
    return min(worker.fraction, 0.99) if worker.loading == wanted.model else 0.0
