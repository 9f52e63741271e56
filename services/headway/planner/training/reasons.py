"""Why a training plan is as it is, in sentences with numbers. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from headway.core.plan.training import TrainingSensitivity, TrainingStage
from headway.core.units import format_bytes, format_count, format_duration
from headway.planner.intra.parameters import parameter_state
from headway.planner.training.alpa import AlpaSearch, Found, StepTables
from headway.planner.training.graph_search import Pipeline
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.shape import shape_of

_GAIN = 0.01  # of an iteration's time, that twice the memory would save: it binds


def reasons(
    problem: TrainingProblem,
    found: Found,
    *,
    search: AlpaSearch,
    tables: Sequence[StepTables],
    sensitivities: Sequence[TrainingSensitivity],
) -> Iterator[str]:
    """Args:
    tables: of the plan's number of micro-batches and of its neighbours.
    """
    own = next(each for each in tables if each.num_micro_batches == found.num_micro_batches)
    yield _stages(problem, found, search, own)
    yield _micro_batches(problem, found, search, tables)
    yield from _axes(found)
    yield _recomputing(problem, found, search, own)
    yield _zero(found)
    yield from binding(problem, found, sensitivities)


def _takes(found: Found | None) -> str:
    return "does not fit" if found is None else f"takes {format_duration(found.iteration_s)}"


def _stages(problem: TrainingProblem, found: Found, search: AlpaSearch, own: StepTables) -> str:
    count = len(found.stages)
    most = min(len(own.step.layers), problem.cluster.num_devices)
    others = sorted({1, count - 1, count + 1} & set(range(1, most + 1)) - {count})
    said = [
        f"with {other} it {_takes(search.cut(own, space=replace(problem.space, num_stages=other)))}" for other in others
    ]
    return f"{format_count(count, 'stage')}, {format_duration(found.iteration_s)} an iteration: {', '.join(said)}."


def _micro_batches(problem: TrainingProblem, found: Found, search: AlpaSearch, tables: Sequence[StepTables]) -> str:
    number = found.num_micro_batches
    said = [
        f"with {each.num_micro_batches} it {_takes(search.cut(each))}"
        for each in tables
        if each.num_micro_batches != number
    ]
    latencies = [stage.latency_s for stage in found.stages]
    filling = (sum(latencies) - max(latencies)) / found.iteration_s
    return (
        f"{format_count(number, 'micro-batch', 'es')} of {format_count(problem.batch // number, 'example')}: filling "
        f"and draining the pipeline is {filling:.1%} of an iteration; {', '.join(said) or 'no other number divides'}."
    )


def _axes(found: Found) -> Iterator[str]:
    """What axes split, beside what decides it: communication goes with weights or with activations."""
    shape, training = shape_of(found), found.step.training
    saved = set(training.graph.saved)
    operators = {operator.name: operator for operator in training.graph.operators}
    numbered = enumerate(zip(shape.stages, found.stages, strict=True))
    for parallelism, run in groupby(numbered, key=lambda each: each[1][0].parallelism):
        stages = list(run)
        weights = kept = 0
        for _, (_, stage) in stages:
            weights += sum(training.tensors[each.parameter].num_bytes for each in stage.parameters)
            made = {name for operator in stage.operators for name in operators[operator].outputs}
            kept += sum(training.tensors[name].num_bytes for name in made & saved)
        first, last = stages[0][0], stages[-1][0]
        who = f"Stage {first} runs" if first == last else f"Stages {first} to {last} run"
        yield (
            f"{who} as {parallelism}: weights of {format_bytes(weights)} beside activations of {format_bytes(kept)} "
            "of a micro-batch."
        )


def _recomputing(problem: TrainingProblem, found: Found, search: AlpaSearch, own: StepTables) -> str:
    again = sum(stage.recomputes for stage in found.stages)
    others = [True, False] if 0 < again < len(found.stages) else [again == 0]
    said = []
    for other in others:
        if other in problem.space.recomputes:
            cut = search.cut(own, space=replace(problem.space, recomputes=(other,)))
            said.append(f"if {'all' if other else 'none'} did, it {_takes(cut)}")
    stated = f"{again or 'None'} of {format_count(len(found.stages), 'stage')} recompute{'s' * (again == 1)}"
    return f"{stated}: {', '.join(said)}." if said else f"{stated}, as was wanted."


def _zero(found: Found) -> str:
    levels = sorted({each.zero_stage for stage in found.stages for each in stage.parameters} - {0})
    if not levels:
        return "No state of a parameter is sharded beyond how operators use it (ZeRO 0)."
    saved = max(_saved_bytes(found, stage) for stage in found.stages)
    return (
        f"ZeRO {', '.join(map(str, levels))} for parameters of {sum(_is_sharded(stage) for stage in found.stages)} of "
        f"{format_count(len(found.stages), 'stage')} saves up to {format_bytes(saved)} on each device."
    )


def _is_sharded(stage: TrainingStage) -> bool:
    return any(each.zero_stage for each in stage.parameters)


def _saved_bytes(found: Found, stage: TrainingStage) -> float:
    training, trained = found.step.training, set(found.step.training.graph.trained)
    whole, sharded = (
        sum(
            parameter_state(
                training.tensors[each.parameter],
                each.spec,
                level,
                stage.mesh.shape,
                found.step.precision,
                is_trained=each.parameter in trained,
            ).total_bytes
            for each in stage.parameters
            for level in ([0] if is_whole else [each.zero_stage])
        )
        for is_whole in (True, False)
    )
    return whole - sharded


def binding(problem: TrainingProblem, found: Pipeline, sensitivities: Sequence[TrainingSensitivity]) -> Iterator[str]:
    memory = [problem.cluster.groups[stage.group].memory_bytes for stage in found.stages]
    shares = [stage.memory.total_bytes / room for stage, room in zip(found.stages, memory, strict=True)]
    fullest = max(range(len(shares)), key=shares.__getitem__)
    gains = {
        each.what: 1 - each.iteration_s / found.iteration_s
        for each in sensitivities
        if each.factor > 1 and each.what != "batch" and each.iteration_s is not None
    }
    binds = "binds" if gains.get("memory", 0.0) > _GAIN else "does not bind"
    held = f"{shares[fullest]:.0%} of {format_bytes(memory[fullest])}"
    yield f"Memory {binds}: the devices of stage {fullest} hold {held}."
    if gains:
        said = ", ".join(f"{what} {gain:.1%}" for what, gain in sorted(gains.items(), key=lambda each: -each[1]))
        yield f"Twice of each would save of an iteration: {said}."
