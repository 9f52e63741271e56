"""Checks how the parameters of a stage lie, and its layers."""

from collections import Counter
from collections.abc import Iterator

from headway.core.graph import TensorRole
from headway.core.plan.training import ParameterSharding, TrainingStage
from headway.core.sharding_spec import ShardingSpec
from headway.planner.certify.training.splits import lies, loop_sizes, spec_faults
from headway.planner.certify.training.step import PlannedStep

_ZERO_STAGES = range(4)


def state_violations(step: PlannedStep) -> Iterator[str]:
    for number, stage in enumerate(step.plan.stages):
        yield from (f"Stage {number}: {fault}." for fault in _parameter_faults(step.of(number), stage))
        yield from (f"Stage {number}: {fault}." for fault in _layer_faults(step, stage))


def _parameter_faults(step: PlannedStep, stage: TrainingStage) -> Iterator[str]:
    used = _used(step, stage)
    counts = Counter(each.parameter for each in stage.parameters)
    for name, count in counts.items():
        if name not in used:
            yield f"it holds parameter '{name}', which no operator of it reads"
        elif count > 1:
            yield f"it holds parameter '{name}' {count} times"
    for name in used:
        if name not in counts:
            yield f"it reads parameter '{name}', and does not hold it"
    for each in stage.parameters:
        if each.parameter in used:
            yield from _sharding_faults(step, stage, each, used[each.parameter])


def _used(step: PlannedStep, stage: TrainingStage) -> dict[str, set[ShardingSpec]]:
    """The parameters that a stage's operators read, and how they lie where they are read."""
    used: dict[str, set[ShardingSpec]] = {}
    splits_of = {sharding.operator: sharding.splits for sharding in stage.shardings}
    for operator in step.operators_of(stage):
        accesses = {access.tensor: access for access in (operator.space.reads if operator.space else ())}
        for name in operator.inputs:
            tensor = step.tensors[name]
            if tensor.role is not TensorRole.PARAMETER:
                continue
            spec = ShardingSpec.replicated(len(stage.mesh.shape))
            if name in accesses and operator.name in splits_of:
                spec = lies(accesses[name], tensor, splits_of[operator.name], loop_sizes(operator))
            used.setdefault(name, set()).add(spec)
    return used


def _sharding_faults(
    step: PlannedStep, stage: TrainingStage, sharding: ParameterSharding, read_as: set[ShardingSpec]
) -> Iterator[str]:
    name, spec = sharding.parameter, sharding.spec
    num_dims = len(step.tensors[name].shape)
    if sharding.zero_stage not in _ZERO_STAGES:
        yield f"parameter '{name}' has ZeRO stage {sharding.zero_stage}; there are 0 to 3"
    if faults := list(spec_faults(step.tensors[name], spec, stage.mesh.shape)):
        yield from (f"parameter '{name}' {fault}" for fault in faults)
    elif spec not in read_as:
        others = ", ".join(sorted(each.label(num_dims) for each in read_as))
        yield f"parameter '{name}' is {spec.label(num_dims)}, and its operators read it {others}"


def _layer_faults(step: PlannedStep, stage: TrainingStage) -> Iterator[str]:
    num_forward = sum(not operator.is_backward for operator in step.operators_of(stage))
    if stage.recomputes and not stage.layers:
        yield "it recomputes, and has no layers"
    elif stage.layers and (min(stage.layers) < 1 or sum(stage.layers) != num_forward):
        sizes = ", ".join(map(str, stage.layers))
        yield f"its layers have {sizes} operators, and its forward pass {num_forward}"
