"""Checks that every operator is in one stage, and that stages can run one after the other."""

from collections import Counter
from collections.abc import Iterator

from headway.core.graph import Operator
from headway.planner.certify.training.step import PlannedStep


def coverage_violations(step: PlannedStep) -> Iterator[str]:
    """Checks that every operator is in one stage, once, and in the graph's order."""
    counts = Counter(name for stage in step.plan.stages for name in stage.operators)
    for name, count in counts.items():
        if name not in step.operators:
            yield f"Stage {step.stage_of[name]} has an operator '{name}', which the graph does not have."
        elif count > 1:
            stages = [str(i) for i, stage in enumerate(step.plan.stages) for each in stage.operators if each == name]
            yield f"Operator '{name}' is there {count} times, in stages {', '.join(stages)}."
    for name in step.operators:
        if name not in counts:
            yield f"Operator '{name}' is in no stage."
    for number, stage in enumerate(step.plan.stages):
        if not stage.operators:
            yield f"Stage {number} has no operators."
        positions = [step.flow.positions.get(name, -1) for name in stage.operators]
        for name, before, at in zip(stage.operators[1:], positions, positions[1:], strict=False):
            if before > at >= 0:
                yield f"Stage {number} has operator '{name}' behind one that comes later in the graph."
                break


def order_violations(step: PlannedStep) -> Iterator[str]:
    """Checks that the forward pass goes from stage to stage and the backward pass back the same way."""
    for operator in step.graph.operators:
        yield from _home_violations(step, operator)
        for name in operator.inputs:
            maker = step.maker(name)
            if maker is not None:
                yield from _edge_violations(step, maker, operator, tensor=name)


def successor_violations(step: PlannedStep) -> Iterator[str]:
    """Checks that a stage that reads what another makes waits for it (C2 of GraphPipe), at first or second hand."""
    later = step.plan.successors
    reached: list[set[int]] = [set() for _ in later]
    for number in reversed(range(len(later))):
        reached[number] = set(later[number]).union(*(reached[other] for other in later[number]))
    told: set[tuple[int, int]] = set()
    for operator in step.graph.operators:
        for name in operator.inputs:
            maker = step.maker(name)
            if operator.is_backward or maker is None or maker.is_backward:
                continue
            source, target = step.stage_of[maker.name], step.stage_of[operator.name]
            if source < target and target not in reached[source] and (source, target) not in told:
                told.add((source, target))
                yield f"Stage {target} reads '{name}' of stage {source}, and does not wait for it."


def _home_violations(step: PlannedStep, operator: Operator) -> Iterator[str]:
    """A backward operator is where its forward one is: it needs what that has kept."""
    if not operator.is_backward or not operator.forward:
        return
    stage, home = step.stage_of[operator.name], step.stage_of.get(operator.forward)
    if home is not None and home != stage:
        yield (
            f"Backward operator '{operator.name}' is in stage {stage}, and its forward operator "
            f"'{operator.forward}' in stage {home}."
        )


def _edge_violations(step: PlannedStep, maker: Operator, reader: Operator, *, tensor: str) -> Iterator[str]:
    source, target = step.stage_of[maker.name], step.stage_of[reader.name]
    if maker.is_backward and not reader.is_backward:
        yield f"Forward operator '{reader.name}' reads '{tensor}', which the backward pass makes."
    elif maker.is_backward and source < target:
        yield (
            f"Backward operator '{reader.name}' of stage {target} reads '{tensor}' of stage {source}, whose backward "
            "pass comes later."
        )
    elif not maker.is_backward and source > target:
        what = "Backward" if reader.is_backward else "Forward"
        yield (
            f"{what} operator '{reader.name}' of stage {target} reads '{tensor}', which the later stage {source} makes"
            f"{_way_round(step, maker, target)}."
        )


def _way_round(step: PlannedStep, maker: Operator, stage: int) -> str:
    """Says so where the path comes from the stage that it goes back to: the stage is not convex then."""
    seen, left = {maker.name}, [maker]
    while left:
        for name in left.pop().inputs:
            before = step.maker(name)
            if before is None or before.name in seen:
                continue
            if step.stage_of[before.name] == stage:
                return f": a path leaves stage {stage} at '{before.name}' and comes back"
            seen.add(before.name)
            left.append(before)
    return ""
