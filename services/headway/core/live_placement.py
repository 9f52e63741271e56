"""A serving plan as the placement that it is, and its workers as the cluster that they are."""

from collections import Counter
from collections.abc import Collection, Sequence

from headway.core.catalogue import Catalogue
from headway.core.cluster import Hardware, PlanWorker
from headway.core.device_name import device_name
from headway.core.held_memory import runtime_bytes_of
from headway.core.placement import GroupShape, PlacedGroup, Placement
from headway.core.placement_problem import ServingCluster
from headway.core.plan.serving import ServingPlan


def live_placement(plan: ServingPlan, models: Collection[str], *, catalogue: Catalogue | None = None) -> Placement:
    """The groups of a plan with those of `models` that they have; groups that have none are left out.

    Args:
        catalogue: that names the devices of the groups; None where they are of one kind.
    """
    hardware = {worker.worker_id: worker.hardware for worker in plan.workers}
    groups: dict[tuple[str, ...], PlacedGroup] = {}
    for assignment in plan.assignments:
        if assignment.model in models:
            known, num_stages = groups.get(assignment.worker_ids), assignment.parallel.pp
            device = live_device(hardware[assignment.worker_id], catalogue) if catalogue is not None else ""
            groups[assignment.worker_ids] = PlacedGroup(
                shape=GroupShape(pp=num_stages, op=len(assignment.worker_ids) // num_stages, device=device),
                models=(*(known.models if known else ()), assignment.model),
            )
    return Placement(groups=tuple(groups.values()))


def placement_text(placement: Placement) -> str:
    """Writes a placement as `headway plan explain --instead` takes it: 'groups=1*2x1,1*1x1 models=chat@0,1;code@1'."""
    homes: dict[str, list[str]] = {}
    for number, group in enumerate(placement.groups):
        for model in group.models:
            homes.setdefault(model, []).append(str(number))
    groups = ",".join(f"1*{group.shape}" for group in placement.groups)
    models = ";".join(f"{model}@{','.join(numbers)}" for model, numbers in homes.items())
    return f"groups={groups} models={models}"


def live_clusters(workers: Sequence[PlanWorker], *, catalogue: Catalogue) -> tuple[ServingCluster, ...]:
    """One for each kind of device and engine, by falling number of workers."""
    kinds: dict[str, list[PlanWorker]] = {}
    for worker in workers:
        kinds.setdefault(live_device(worker.hardware, catalogue), []).append(worker)
    by_number = sorted(kinds, key=lambda device: (-len(kinds[device]), device))
    return tuple(live_cluster(kinds[device], device=device) for device in by_number)


def live_device(hardware: Hardware, catalogue: Catalogue) -> str:
    """What a placement calls the device of a worker."""
    return device_name(catalogue.device_of(hardware).name, hardware.engine)


def live_cluster(workers: Sequence[PlanWorker], *, device: str) -> ServingCluster:
    """Workers as equal devices; of unlike ones the least memory counts.

    Args:
        workers: one at least.
        device: what a placement calls them.
    """
    cells = Counter((worker.machine, worker.hardware.content_hash) for worker in workers)
    machines = tuple(sorted(cells.values(), reverse=True))
    return ServingCluster(
        device=device,
        num_devices=len(workers),
        devices_per_node=machines[0],
        nodes=machines if len(set(machines)) > 1 else (),
        memory_bytes=min(worker.hardware.memory_bytes - runtime_bytes_of(worker.hardware) for worker in workers),
    )
