"""Checks the memory of each stage's devices against a recount, and against what the devices have."""

import math
from collections.abc import Iterator
from dataclasses import fields

from headway.core.plan.training import DeviceMemory
from headway.core.training_cluster import TrainingCluster
from headway.core.units import format_bytes
from headway.planner.certify.training.activations import activation_bytes, workspace_bytes
from headway.planner.certify.training.held import HeldTensors
from headway.planner.certify.training.state_bytes import state_bytes
from headway.planner.certify.training.step import PlannedStep

_TOLERANCE = 0.02  # of what a device holds


def memory_violations(step: PlannedStep, cluster: TrainingCluster) -> Iterator[str]:
    for number, stage in enumerate(step.plan.stages):
        found, said = recount(step, number), stage.memory
        if not all(math.isfinite(value) and value >= 0 for value in _parts(said).values()):
            yield f"Stage {number} says of its memory {', '.join(f'{k} {v}' for k, v in _parts(said).items())}."
            continue
        yield from (f"Stage {number}: {fault}" for fault in _differences(said, found))
        capacity = cluster.groups[stage.group].memory_bytes
        most = max(found.total_bytes, said.total_bytes)
        if most > capacity:
            yield (
                f"Stage {number} takes {format_bytes(most)} on each device, and a {cluster.groups[stage.group].device} "
                f"has {format_bytes(capacity)}: {most - capacity} bytes too much."
            )


def recount(step: PlannedStep, number: int) -> DeviceMemory:
    """Counts anew what each device of a stage holds at its peak."""
    step = step.of(number)
    stage, held = step.plan.stages[number], HeldTensors(step, number)
    weights, gradients, optimizer = state_bytes(step, stage)
    return DeviceMemory(
        weights_bytes=math.ceil(weights),
        gradients_bytes=math.ceil(gradients),
        optimizer_bytes=math.ceil(optimizer),
        activations_bytes=math.ceil(stage.in_flight * activation_bytes(held)),
        workspace_bytes=math.ceil(workspace_bytes(held)),
    )


def _differences(said: DeviceMemory, found: DeviceMemory) -> Iterator[str]:
    allowed = _TOLERANCE * found.total_bytes
    for name, value in _parts(found).items():
        claimed = _parts(said)[name]
        if abs(claimed - value) > allowed:
            yield f"the plan says {format_bytes(claimed)} of {name} on each device, and it is {_exact(value)}."


def _exact(num_bytes: int) -> str:
    return f"{format_bytes(num_bytes)} ({num_bytes} bytes)"


def _parts(memory: DeviceMemory) -> dict[str, int]:
    return {field.name.removesuffix("_bytes"): getattr(memory, field.name) for field in fields(memory)}
