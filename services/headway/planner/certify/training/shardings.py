"""Checks how operators are split over their stage's mesh, and how their results and what they receive lie."""

from collections import Counter
from collections.abc import Iterator, Sequence

from headway.core.graph import Operator
from headway.core.plan.training import OperatorSharding, TrainingStage
from headway.core.sharding_spec import ShardingSpec
from headway.planner.certify.training.results import as_split
from headway.planner.certify.training.splits import partial_axes, spec_faults, split_faults
from headway.planner.certify.training.step import PlannedStep


def sharding_violations(step: PlannedStep) -> Iterator[str]:
    for number, stage in enumerate(step.plan.stages):
        named = [sharding.operator for sharding in stage.shardings]
        if named != list(stage.operators):
            yield f"Stage {number} has shardings of {_difference(named, stage.operators)}."
            continue
        own = step.of(number)
        for sharding in stage.shardings:
            yield from (f"Stage {number}: {fault}." for fault in _operator_faults(own, stage, sharding))
        yield from (f"Stage {number}: {fault}." for fault in _received_faults(own, number))


def _difference(named: Sequence[str], wanted: Sequence[str]) -> str:
    counts = Counter(named)
    for name in counts:
        if name not in wanted:
            return f"'{name}', which is none of its operators"
        if counts[name] > 1:
            return f"'{name}' {counts[name]} times"
    missing = next((name for name in wanted if name not in counts), None)
    return "its operators in another order" if missing is None else f"all but '{missing}'"


def _operator_faults(step: PlannedStep, stage: TrainingStage, sharding: OperatorSharding) -> Iterator[str]:
    operator, mesh_shape = step.operators[sharding.operator], stage.mesh.shape
    if faults := list(split_faults(operator, sharding.splits, mesh_shape)):
        yield from (f"operator '{operator.name}' {fault}" for fault in faults)
        return
    if sharding.result is None:
        return
    if not operator.outputs:
        yield f"operator '{operator.name}' makes nothing, and its result has a sharding"
        return
    name = operator.outputs[0]
    if faults := list(spec_faults(step.tensors[name], sharding.result, mesh_shape)):
        yield from (f"tensor '{name}' {fault}" for fault in faults)
    else:
        yield from _result_faults(step, operator, sharding.splits, sharding.result)


def _result_faults(step: PlannedStep, operator: Operator, splits: Sequence[str], result: ShardingSpec) -> Iterator[str]:
    """Says so where a result lies otherwise than the splits leave it: only partial results may be scattered."""
    name = operator.outputs[0]
    num_dims = len(step.tensors[name].shape)
    access = next((each for each in (operator.space.writes if operator.space else ()) if each.tensor == name), None)
    expected = as_split(step, operator, splits, name)
    free = set() if access is None else partial_axes(access, splits)
    wrong = [axis for axis, shard in enumerate(result.axes) if axis not in free and shard != expected.axes[axis]]
    if wrong:
        yield (
            f"tensor '{name}' is {result.label(num_dims)}, and the splits of operator '{operator.name}' leave it "
            f"{expected.label(num_dims)} along mesh axis {wrong[0]}"
        )


def _received_faults(step: PlannedStep, number: int) -> Iterator[str]:
    stage = step.plan.stages[number]
    wanted, named = step.received(number), [each.tensor for each in stage.received]
    for name, count in Counter(named).items():
        if name not in wanted:
            yield f"it receives '{name}', which no operator of it reads from another stage"
        elif count > 1:
            yield f"it receives '{name}' {count} times"
    for name in wanted:
        if name not in named:
            yield f"it reads '{name}' of another stage, and does not receive it"
    for each in stage.received:
        if each.tensor in wanted:
            faults = spec_faults(step.tensors[each.tensor], each.spec, stage.mesh.shape)
            yield from (f"tensor '{each.tensor}', which it receives, {fault}" for fault in faults)
