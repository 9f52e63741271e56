"""Checks that stages that share a parameter have the time to join its gradients."""

from collections.abc import Iterator
from math import prod

from headway.core.plan.training import TrainingStage
from headway.core.training_cluster import TrainingCluster
from headway.planner.certify.training.state_bytes import GRADIENT_BYTES
from headway.planner.certify.training.step import PlannedStep

_ROUNDING = 1e-6


def sharing_violations(step: PlannedStep, cluster: TrainingCluster) -> Iterator[str]:
    """Once an iteration an all-reduce among the stages joins the gradient of each trained parameter that they share."""
    trained = set(step.graph.trained)
    for name, holders in step.plan.shared_parameters.items():
        if name not in trained:
            continue
        num_bytes = GRADIENT_BYTES * prod(step.tensors[name].shape)
        sent = 2 * num_bytes * (len(holders) - 1) / len(holders)
        for number in holders:
            stage = step.plan.stages[number]
            least_s = sent / _bytes_per_s(stage, cluster)
            if stage.once_s < least_s * (1 - _ROUNDING):
                yield (
                    f"Stage {number} shares '{name}' with {len(holders) - 1} other, and takes {stage.once_s:.6g} s "
                    f"once an iteration; joining its gradient takes {least_s:.6g} s."
                )


def _bytes_per_s(stage: TrainingStage, cluster: TrainingCluster) -> float:
    """That leave a stage together: by the link where there is one node, else by the nodes' ports."""
    nodes = cluster.groups[stage.group]
    if nodes.num_nodes == 1:
        return stage.mesh.num_devices * nodes.link.bytes_per_s
    return stage.mesh.submesh.num_nodes * nodes.num_ports * nodes.network.bytes_per_s
