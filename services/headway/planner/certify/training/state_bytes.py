"""Counts the state of a stage's parameters: weights, gradients and Adam's moments, sharded as ZeRO says."""

from math import prod

from headway.core.graph import TensorRole
from headway.core.plan.training import ParameterSharding, TrainingStage
from headway.planner.certify.training.step import PlannedStep

GRADIENT_BYTES = 4  # gradients of all micro-batches are added up in float32
_MOMENTS_BYTES = 8
_MASTER_BYTES = 4


def weight_bytes(precision: str) -> int:
    """Bytes of one number of the weights that operators use."""
    return 4 if precision == "float32" else 2


def state_bytes(step: PlannedStep, stage: TrainingStage) -> tuple[float, float, float]:
    """The bytes of weights with buffers, of gradients, and of the optimizer's state, on each device."""
    width = weight_bytes(step.plan.precision)
    adam = _MOMENTS_BYTES + (_MASTER_BYTES if width < _MASTER_BYTES else 0)
    trained = set(step.graph.trained)
    weights, gradients, optimizer = float(_buffer_bytes(step, stage)), 0.0, 0.0
    for sharding in stage.parameters:
        numbers, copies = numbers_of(step, stage, sharding)
        is_trained = sharding.parameter in trained
        weights += width * numbers / (copies if is_trained and sharding.zero_stage >= 3 else 1)
        if is_trained:
            gradients += GRADIENT_BYTES * numbers / (copies if sharding.zero_stage >= 2 else 1)
            optimizer += adam * numbers / (copies if sharding.zero_stage >= 1 else 1)
    return weights, gradients, optimizer


def numbers_of(step: PlannedStep, stage: TrainingStage, sharding: ParameterSharding) -> tuple[float, int]:
    """The numbers of a parameter that an operator on one device uses, and the devices that use the same ones."""
    sizes = list(zip(stage.mesh.shape, sharding.spec.axes, strict=True))
    shards = prod(size for size, shard in sizes if shard is not None)
    copies = prod(size for size, shard in sizes if shard is None)
    return prod(step.tensors[sharding.parameter].shape) / shards, copies


def _buffer_bytes(step: PlannedStep, stage: TrainingStage) -> int:
    names = {name for operator in step.operators_of(stage) for name in operator.inputs}
    return sum(step.tensors[name].num_bytes for name in names if step.tensors[name].role is TensorRole.BUFFER)
