"""Chooses workers for models that are served on some terms, so that models on other terms lose as little as can be.
Pure.

A model more has others give workers up. What these have to give up anyway is taken first, of each model one group, and
then what they miss least.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headway.core.cluster import PlanWorker
from headway.planner.serving.grouping import Group, form_groups

Bin: TypeAlias = tuple[str, str]
"""The pool, and which hardware: workers that may be a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a worker is for models that it serves.

    Attributes:
        stays: whether they would keep it.
        place: of its group among those of its model, from 1.
        mates: its group, which is given up as a whole.
    """

    stays: bool
    place: int
    mates: tuple[str, ...]


def bin_of(worker: PlanWorker) -> Bin:
    return worker.pool, worker.hardware.content_hash


def in_bin(workers: Mapping[str, PlanWorker], place: Bin) -> dict[str, PlanWorker]:
    return {name: worker for name, worker in workers.items() if bin_of(worker) == place}


def claims_of(
    held: Mapping[tuple[str, ...], int],
    workers: Mapping[str, PlanWorker],
    *,
    seats: Mapping[Bin, int],
    group_size: int,
) -> dict[str, Claim]:
    """What workers are for the models that hold them.

    Args:
        held: groups, those first that are needed most, each with its place among its model's.
        seats: how many of each bin they are to have.
    """
    claims: dict[str, Claim] = {}
    for each in set(map(bin_of, workers.values())):
        there = in_bin(workers, each)
        own = [ids for ids in held if there.keys() >= set(ids)]
        staying = set(_staying(own, seats.get(each, 0), group_size))
        claims |= {name: Claim(stays=name in staying, place=held[ids], mates=ids) for ids in own for name in ids}
    return claims


def joined(claims: Iterable[Mapping[str, Claim]]) -> dict[str, Claim]:
    """The claims of several: one that stays counts more."""
    joined: dict[str, Claim] = {}
    for each in claims:
        joined |= {name: claim for name, claim in each.items() if claim.stays or name not in joined}
    return joined


def choose_workers(
    workers: Mapping[str, PlanWorker],
    size: int,
    *,
    group_size: int,
    own: Sequence[tuple[str, ...]],
    claims: Mapping[str, Claim],
) -> list[str]:
    """Chooses `size` workers: whole groups that serve the models already, then groups that others miss least, those
    first that are on one machine.

    Args:
        workers: to choose from, by id.
        own: groups that serve the models, those first that are needed most.
        claims: of the others.
    """
    chosen = dict.fromkeys(_staying(own, size, group_size))
    own_ids = {name for ids in own for name in ids}

    def importance(name: str) -> tuple[bool, int, int, tuple[str, ...]]:
        claim = claims.get(name)
        return name not in own_ids, *((0, 0, ()) if claim is None else (1 + claim.stays, -claim.place, claim.mates))

    def disturbance(group: Group) -> tuple[int, int, int, int, int]:
        names, num_machines = [worker.worker_id for worker in group], len({worker.machine for worker in group})
        claimed = [claims[name] for name in names if name in claims]
        return (
            sum(name not in own_ids for name in names),
            num_machines,
            sum(claim.stays for claim in claimed),
            len(claimed),
            -min((claim.place for claim in claimed), default=0),
        )

    left = [workers[name] for name in sorted(workers, key=importance) if name not in chosen]
    for group in sorted(form_groups(left, size=group_size), key=disturbance):
        if len(chosen) + group_size <= size:
            chosen.update(dict.fromkeys(worker.worker_id for worker in group))
    return list(chosen)


def _staying(own: Sequence[tuple[str, ...]], size: int, group_size: int) -> list[str]:
    """Workers of whole groups, the first ones, no more than `size`."""
    staying: dict[str, None] = {}
    for ids in own:
        if group_size in (1, len(ids)) and len(staying) + len(ids) <= size:
            staying.update(dict.fromkeys(ids))
    return list(staying)
