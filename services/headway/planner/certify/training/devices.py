"""Checks that stages have devices of their own, in submeshes of the form that links allow."""

from collections.abc import Iterator
from math import prod

from headway.core.plan.training import TrainingPlan, TrainingStage
from headway.core.training_cluster import NodeGroup, TrainingCluster

_MOST_AXES = 2


def device_violations(plan: TrainingPlan, cluster: TrainingCluster) -> Iterator[str]:
    taken: dict[int, int] = {}
    firsts = _first_devices(cluster)
    for number, stage in enumerate(plan.stages):
        if not 0 <= stage.group < len(cluster.groups):
            yield f"Stage {number} is in node group {stage.group}, and there are {len(cluster.groups)}."
            continue
        if faults := list(_mesh_faults(stage)):
            yield from (f"Stage {number}: {fault}" for fault in faults)
            continue
        group, first = cluster.groups[stage.group], firsts[stage.group]
        yield from (f"Stage {number}: {fault}" for fault in _place_faults(stage, group, first))
        for device in range(stage.first_device, stage.first_device + stage.mesh.num_devices):
            other = taken.setdefault(device, number)
            if other != number:
                yield f"Stages {other} and {number} both have device {device}."
                break


def _first_devices(cluster: TrainingCluster) -> list[int]:
    sizes = [group.num_nodes * group.devices_per_node for group in cluster.groups]
    return [sum(sizes[:number]) for number in range(len(sizes))]


def _mesh_faults(stage: TrainingStage) -> Iterator[str]:
    mesh, submesh = stage.mesh, stage.mesh.submesh
    if submesh.num_nodes < 1 or submesh.devices_per_node < 1:
        yield f"the submesh is {submesh}."
        return
    if not 1 <= len(mesh.shape) <= _MOST_AXES or min(mesh.shape) < 1:
        yield f"the mesh has the shape {mesh}; it has one or two axes of one device at least."
        return
    if prod(mesh.shape) != submesh.num_nodes * submesh.devices_per_node:
        num_devices = submesh.num_nodes * submesh.devices_per_node
        yield f"the logical mesh {mesh} has {prod(mesh.shape)} devices, and the submesh {submesh} {num_devices}."


def _place_faults(stage: TrainingStage, group: NodeGroup, first: int) -> Iterator[str]:
    """A submesh is 1, 2, 4, ... devices within a node, or whole nodes (dissertation section 3.5.2)."""
    submesh, in_group = stage.mesh.submesh, stage.first_device - first
    last = in_group + submesh.num_nodes * submesh.devices_per_node - 1
    if in_group < 0 or last >= group.num_nodes * group.devices_per_node:
        end = first + group.num_nodes * group.devices_per_node - 1
        yield (
            f"devices {stage.first_device} to {first + last} are not all in node group {stage.group}, which has "
            f"devices {first} to {end}."
        )
        return
    per_node = group.devices_per_node
    is_power_of_two = submesh.devices_per_node & (submesh.devices_per_node - 1) == 0
    is_whole = submesh.devices_per_node == per_node
    if not (is_whole or (submesh.num_nodes == 1 and is_power_of_two)) or submesh.devices_per_node > per_node:
        yield (
            f"the submesh {submesh} is neither 1, 2, 4, ... devices of a node nor whole nodes of {per_node} devices."
        )
    elif is_whole and in_group % per_node:
        yield f"the submesh {submesh} has whole nodes, and device {stage.first_device} is not the first of its node."
    elif in_group // per_node != last // per_node and submesh.num_nodes == 1:
        yield f"devices {stage.first_device} to {first + last} are in two nodes, and the submesh {submesh} in one."
