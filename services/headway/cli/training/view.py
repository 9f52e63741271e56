"""Shows a training plan."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from headway.cli.wide_table import WideTable
from headway.core.plan.training import OtherSchedule, PlannedSchedule, TrainingAlternative, TrainingPlan, TrainingStage
from headway.core.units import format_bytes, format_duration

_LEFT = ("devices", "mesh", "state")


def training_view(plan: TrainingPlan, violations: Sequence[str] = ()) -> RenderableType:
    """Shows what an iteration takes, stages with their devices and memory, and alternatives.

    Args:
        violations: what the certifier says of the plan.
    """
    return Group(
        Text(f"plan {plan.plan_id}", style="bold"),
        Text(_resting_on(plan)),
        *(Text(f"! {violation}", style="red") for violation in violations),
        Text.assemble(("iteration ", "bold"), _expected(plan)),
        *([] if plan.schedule is None else [Text.assemble(("schedule ", "bold"), _scheduled(plan.schedule))]),
        _stages(plan),
        *_idle(plan),
        *_shared(plan),
        Text("memory of each device", style="bold"),
        _memory(plan),
        *(_alternative(plan, each) for each in plan.alternatives),
        *(_other_schedule(each) for each in _others(plan)),
    )


def training_explanation(plan: TrainingPlan) -> RenderableType:
    """Says why the plan is as it is, and what speaks against each alternative."""
    lines = [Text(f"- {reason}") for reason in plan.reasons]
    for alternative in plan.alternatives:
        lines += [_alternative(plan, alternative), *(Text(f"  - {reason}") for reason in alternative.why_not)]
    if plan.schedule is not None:
        lines.append(Text.assemble(("schedule ", "bold"), _scheduled(plan.schedule)))
    for other in _others(plan):
        lines += [_other_schedule(other), Text(f"  - {other.why_not}")]
    return Group(*lines)


def _others(plan: TrainingPlan) -> tuple[OtherSchedule, ...]:
    return () if plan.schedule is None else plan.schedule.others


def _other_schedule(other: OtherSchedule) -> Text:
    takes = "not for this plan"
    if other.iteration_s is not None and other.bubble is not None:
        takes = f"{format_duration(other.iteration_s)}, {other.bubble:.0%} bubble"
    return Text.assemble(("instead ", "cyan"), f"schedule {other.name}: {takes}")


def _state_text(stage: TrainingStage) -> str:
    """What is sharded beside how operators use it, and whether activations are computed again, as 'ZeRO-1, 3'."""
    levels = [str(level) for level in stage.zero_stages if level]
    zero = [f"ZeRO-{', '.join(levels)}"] if levels else []
    return "; ".join([*zero, *(["recomputes"] if stage.recomputes else [])]) or "-"


def _resting_on(plan: TrainingPlan) -> str:
    ended = "" if plan.is_complete else ", ended before it was done"
    parts = f" in {plan.num_micro_batches} micro-batches of {plan.micro_batch}" if plan.num_micro_batches > 1 else ""
    if plan.has_own_sizes:
        parts += ", smaller ones in some stages"
    if plan.slices:
        parts += f", each in slices of {', '.join(map(str, plan.slices))} tokens"
    return (
        f"{plan.model} on {plan.cluster.label}; batch {plan.batch:,}{parts}, {plan.precision}; {plan.method}, "
        f"searched for {format_duration(plan.search_s)} ({format_duration(plan.search_cpu_s)} of CPU){ended}"
    )


def _expected(plan: TrainingPlan) -> str:
    error = f" +- {plan.relative_error:.0%}" if plan.relative_error else ""
    rate = plan.flops / plan.iteration_s / plan.cluster.num_devices / 1e12
    return (
        f"{format_duration(plan.iteration_s)}{error}, {plan.throughput:.4g} examples/s, {rate:.3g} TFLOP/s a device, "
        f"{plan.bubble:.0%} bubble"
    )


def _scheduled(schedule: PlannedSchedule) -> str:
    return (
        f"{schedule.name}: {format_duration(schedule.iteration_s)} an iteration by simulation, "
        f"{format_duration(schedule.period_s)} for one more micro-batch, {schedule.bubble:.0%} bubble"
    )


def _stages(plan: TrainingPlan) -> WideTable:
    names = ["stage", "devices", "mesh", "operators", "forward", "backward", "hands over", "once", "in flight", "state"]
    if plan.has_own_sizes:
        names.insert(names.index("forward"), "micro-batch")
    rows = [
        (
            str(number),
            _devices_text(plan, stage),
            str(stage.mesh),
            str(len(stage.operators)),
            *([str(plan.micro_batch_of(stage))] if plan.has_own_sizes else []),
            *(format_duration(s) for s in (stage.forward_s, stage.backward_s, stage.handover_s, stage.once_s)),
            str(stage.in_flight),
            _state_text(stage),
        )
        for number, stage in enumerate(plan.stages)
    ]
    return WideTable([(name, "left" if name in _LEFT else "right") for name in names], rows, num_names=1)


def _devices_text(plan: TrainingPlan, stage: TrainingStage) -> str:
    """Names a stage's devices, e.g. '8-15'; with their kind where there are several."""
    first, last = stage.devices[0], stage.devices[-1]
    numbers = str(first) if first == last else f"{first}-{last}"
    groups = plan.cluster.groups
    return numbers if len(groups) == 1 else f"{numbers} {groups[stage.group].device}"


def _idle(plan: TrainingPlan) -> Iterator[Text]:
    """The groups of nodes that no stage has."""
    used = {stage.group for stage in plan.stages}
    for number, nodes in enumerate(plan.cluster.groups):
        if number not in used:
            yield Text(f"no stage has devices of {nodes.label}: the pipeline would take longer with them")


def _shared(plan: TrainingPlan) -> Iterator[Text]:
    """The parameters that several stages hold."""
    for name, stages in plan.shared_parameters.items():
        numbers = f"{', '.join(map(str, stages[:-1]))} and {stages[-1]}"
        yield Text(f"stages {numbers} share {name}: they join its gradients once an iteration")


def _memory(plan: TrainingPlan) -> WideTable:
    names = ("stage", "weights", "gradients", "optimizer", "activations", "workspace", "total", "full")
    rows = []
    for number, stage in enumerate(plan.stages):
        memory, capacity = stage.memory, plan.cluster.groups[stage.group].memory_bytes
        states = (memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes)
        parts = (*states, memory.activations_bytes, memory.workspace_bytes, memory.total_bytes)
        rows.append((str(number), *map(format_bytes, parts), f"{memory.total_bytes / capacity:.0%}"))
    return WideTable([(name, "right") for name in names], rows, num_names=1)


def _alternative(plan: TrainingPlan, alternative: TrainingAlternative) -> Text:
    takes = "no plan"
    if alternative.missing_bytes is not None:
        takes = f"does not fit: a device lacks {format_bytes(alternative.missing_bytes)}"
    if alternative.least_s is not None:
        takes = f"{format_duration(alternative.least_s)} at least, {alternative.least_s / plan.iteration_s:.2f}x"
    if alternative.iteration_s is not None:
        takes = f"{format_duration(alternative.iteration_s)}, {alternative.iteration_s / plan.iteration_s:.2f}x"
    layout = f"; {alternative.layout}" if alternative.layout else ""
    return Text.assemble(("instead ", "cyan"), f"{alternative.name}: {takes}{layout}")
