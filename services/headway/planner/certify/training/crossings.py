"""Checks that what goes from one group of nodes to another takes the time that their networks need."""

from collections.abc import Iterator

from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.planner.certify.training.step import PlannedStep

_ROUNDING = 1e-6


def crossing_violations(step: PlannedStep, cluster: TrainingCluster) -> Iterator[str]:
    """A stage whose next one is in another group sends what it makes for later stages, and gets gradients back, through
    the ports of its nodes, no faster than the slower of the two networks."""
    stages = step.plan.stages
    for number, stage in enumerate(stages):
        others = {stages[later].group for later in step.plan.successors[number]} - {stage.group}
        if not others:
            continue
        slowest = min(_bytes_per_s(cluster.groups[group]) for group in {stage.group, *others})
        num_bytes = _sent_bytes(step.of(number), number)
        least_s = num_bytes / (stage.mesh.submesh.num_nodes * slowest)
        if stage.handover_s < least_s * (1 - _ROUNDING):
            yield (
                f"Stage {number} hands {num_bytes} bytes over to another group of nodes in {stage.handover_s:.6g} s, "
                f"and their networks take {least_s:.6g} s."
            )


def _bytes_per_s(nodes: NodeGroup) -> float:
    return nodes.num_ports * nodes.network.bytes_per_s


def _sent_bytes(step: PlannedStep, number: int) -> int:
    """Bytes of a micro-batch that a stage makes and later ones read, and of the gradients that it reads of them."""
    made = {name for operator in step.operators_of(step.plan.stages[number]) for name in operator.outputs}
    found = {
        name for later in range(number + 1, len(step.plan.stages)) for name in step.received(later) if name in made
    }
    for name in step.received(number):
        maker = step.maker(name)
        if maker is not None and step.stage_of[maker.name] > number:
            found.add(name)
    return sum(step.cast_tensors[name].num_bytes for name in found)
