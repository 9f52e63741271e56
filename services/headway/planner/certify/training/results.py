"""How the tensors of one stage lie, as its plan says it: results as splits leave them or as they are scattered,
gradients as the tensors whose gradients they are.
"""

from collections.abc import Sequence

from headway.core.graph import Operator
from headway.core.plan.training import OperatorSharding, TrainingStage
from headway.core.sharding_spec import ShardingSpec
from headway.planner.certify.training.splits import lies, loop_sizes, spec_faults
from headway.planner.certify.training.step import PlannedStep


def tensor_specs(step: PlannedStep, stage: TrainingStage) -> dict[str, ShardingSpec]:
    """The sharding of each tensor that a stage receives or makes, by name."""
    specs = {each.parameter: each.spec for each in stage.parameters}
    specs |= {each.tensor: each.spec for each in stage.received}
    primal_of = step.primals
    for sharding in stage.shardings:
        operator = step.operators[sharding.operator]
        for name in operator.outputs:
            specs[name] = _made(step, operator, sharding, name)
            primal = specs.get(primal_of.get(name, "")) if operator.is_backward else None
            if primal is not None and not any(spec_faults(step.tensors[name], primal, stage.mesh.shape)):
                specs[name] = primal
    return {name: spec for name, spec in specs.items() if step.maker(name) is not None}


def as_split(step: PlannedStep, operator: Operator, splits: Sequence[str], name: str) -> ShardingSpec:
    """How a result lies as the splits leave it; what nothing is known of is whole everywhere."""
    accesses = () if operator.space is None else operator.space.writes
    access = next((each for each in accesses if each.tensor == name), None)
    if access is None:
        return ShardingSpec.replicated(len(splits))
    return lies(access, step.tensors[name], splits, loop_sizes(operator))


def _made(step: PlannedStep, operator: Operator, sharding: OperatorSharding, name: str) -> ShardingSpec:
    if sharding.result is not None and name == operator.outputs[0]:
        return sharding.result
    return as_split(step, operator, sharding.splits, name)
