"""Decides which processes run together: those that joined one run of a group. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """The run of a group that one worker process is part of.

    Attributes:
        worker_ids: the group's workers.
        epoch: the id of the run that it joined; '' for none.
    """

    worker_ids: tuple[str, ...] = ()
    epoch: str = ""


def mates(worker_id: str, runs: Mapping[str, GroupRun]) -> tuple[str, ...]:
    """The others in the same run: none of them goes on once this one has died."""
    run = runs.get(worker_id, GroupRun())
    if not run.epoch:
        return ()
    return tuple(mate for mate, other in runs.items() if mate != worker_id and other.epoch == run.epoch)


def broken(runs: Mapping[str, GroupRun]) -> tuple[str, ...]:
    """Workers of which a mate is there, but not in their run: it was started anew, and they wait for it in vain.

    Args:
        runs: of the workers that are there.
    """
    return tuple(
        worker_id
        for worker_id, run in runs.items()
        if run.epoch and any(mate in runs and runs[mate].epoch != run.epoch for mate in run.worker_ids)
    )
