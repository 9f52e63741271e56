"""A measured model for people and for programs."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.codec import to_document
from headway.core.model_profile import Cost, ModelProfile, ModelProfileSummary
from headway.core.profiling_units import Layer, OperatorGroup
from headway.core.units import format_bytes, format_duration

_MIN_WIDTH = 12


def model_profile_document(profile: ModelProfile) -> dict[str, Any]:
    """The profile as a JSON document, with what follows from it: total seconds, and operators, the slowest first."""
    whole = profile.cost(profile.subject.program)
    return {
        "profile_id": profile.profile_id,
        "model": profile.subject.model,
        "is_training": profile.subject.is_training,
        "hardware": to_document(profile.hardware),
        "parameters": profile.subject.parameters,
        "weight_bytes": profile.subject.weight_bytes,
        "activation_bytes": profile.subject.activation_bytes,
        "gradient_bytes": profile.subject.gradient_bytes,
        "optimizer_bytes": profile.subject.optimizer_bytes,
        "forward_s": profile.phase_s("forward"),
        "backward_s": profile.phase_s("backward"),
        "optimizer_s": profile.phase_s("optimizer"),
        "whole": to_document(whole),
        "whole_over_operators": profile.excess,
        "operators": [
            to_document(group) | {"cost": to_document(profile.cost(group.program))} for group in profile.hottest()
        ],
        "layers": [_layer_document(profile, layer) for layer in profile.subject.layers],
        "stages": [_layer_document(profile, stage) for stage in profile.subject.stages],
        "num_measured": profile.num_measured,
        "num_cached": profile.num_cached,
        "created_at_s": profile.created_at_s,
    }


def model_profile_view(profile: ModelProfile, *, num_operators: int | None) -> RenderableType:
    """Shows a measured model: totals, operators, layers and stages.

    Args:
        num_operators: rows of operators; None for all.
    """
    parts: list[RenderableType] = [_totals(profile), _operators(profile, num_operators)]
    parts.append(_layers("layer", profile, profile.subject.layers))
    if profile.subject.stages:
        parts.append(_layers("stage", profile, profile.subject.stages))
    notes = [
        f"{name}: {profile.cost(program).note}{_estimated(profile.cost(program))}"
        for program, name in profile.subject.program_names().items()
        if profile.cost(program).note
    ]
    if notes:
        parts.append(Text("\n".join(["not measured:", *notes]), style="yellow"))
    parts.append(
        Text(f"{profile.num_measured} measured, {profile.num_cached} from cache; profile {profile.profile_id}")
    )
    return Group(*parts)


def model_summary_table(summaries: Sequence[ModelProfileSummary]) -> Table:
    table = _table("profile", "model", "hardware", "threads", "programs", "operators", "error", "origin")
    for summary in summaries:
        table.add_row(
            summary.profile_id,
            f"{summary.model}, training" if summary.is_training else summary.model,
            summary.hardware.name,
            str(summary.hardware.num_threads),
            str(summary.num_programs),
            format_duration(summary.seconds),
            f"{summary.relative_error:.1%}",
            "measured, stale" if summary.is_stale else "measured",
        )
    return table


def _totals(profile: ModelProfile) -> Text:
    subject = profile.subject
    hardware = profile.hardware
    phases = [f"{phase} {format_duration(profile.phase_s(phase))}" for phase in ("forward", "backward", "optimizer")]
    lines = [
        f"{subject.model} on {hardware.name}, {hardware.num_threads} threads, torch {hardware.software.get('torch')}",
        f"weights {format_bytes(subject.weight_bytes)}, activations {format_bytes(subject.activation_bytes)}"
        + (f", Adam {format_bytes(subject.optimizer_bytes)}" if subject.is_training else ""),
        "sum of operators: " + ", ".join(phases if subject.is_training else phases[:1]),
        _whole(profile),
    ]
    return Text("\n".join(lines))


def _whole(profile: ModelProfile) -> str:
    whole = profile.cost(profile.subject.program)
    if whole.note:
        return f"as a whole: not measured, {whole.note}"
    over = "" if profile.excess is None else f", {profile.excess:+.1%} against the sum of its operators"
    return f"as a whole: {format_duration(whole.seconds)}{over}"


def _operators(profile: ModelProfile, limit: int | None) -> Table:
    hottest = profile.hottest()
    total_s = sum(group.count * profile.cost(group.program).seconds for group in hottest) or 1.0
    table = _table("operator", "kind", "shapes", "phase", "count", "each", "error", "share", "rate")
    for group in hottest[:limit]:
        cost = profile.cost(group.program)
        table.add_row(
            group.target.removesuffix(".default").removeprefix("aten."),
            group.kind,
            group.shapes,
            group.phase,
            str(group.count),
            _seconds(cost),
            f"{cost.relative_error:.1%}" if cost.is_known else "",
            f"{group.count * cost.seconds / total_s:.1%}" if cost.is_known else "?",
            _rate(group, cost),
        )
    if limit is not None and len(hottest) > limit:
        table.caption = f"and {len(hottest) - limit} more; --operators shows all"
    return table


def _layers(title: str, profile: ModelProfile, layers: Sequence[Layer]) -> Table:
    """Tables layers or stages; equal ones that follow each other are one row."""
    table = _table(title, "number", "forward", "as one", "backward", "as one", "optimizer", "weights", "activations")
    runs: list[list[Layer]] = []
    for layer in layers:
        if runs and _cells(profile, runs[-1][0]) == _cells(profile, layer):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    for run in runs:
        name = run[0].name if len(run) == 1 else f"{run[0].name} ... {run[-1].name}"
        table.add_row(name, str(len(run)), *_cells(profile, run[0]))
    return table


def _cells(profile: ModelProfile, layer: Layer) -> tuple[str, ...]:
    forward = profile.cost(layer.forward_program) if layer.forward_program else None
    backward = profile.cost(layer.backward_program) if layer.backward_program else None
    return (
        format_duration(profile.seconds(layer.forward)) if forward else "",
        _seconds(forward) if forward else "",
        format_duration(profile.seconds(layer.backward)) if backward else "",
        _seconds(backward) if backward else "",
        format_duration(profile.seconds(layer.optimizer)) if layer.optimizer else "",
        format_bytes(layer.weight_bytes),
        format_bytes(layer.activation_bytes),
    )


def _layer_document(profile: ModelProfile, layer: Layer) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": layer.name,
        "weight_bytes": layer.weight_bytes,
        "activation_bytes": layer.activation_bytes,
        "forward_s": profile.seconds(layer.forward),
        "backward_s": profile.seconds(layer.backward),
        "optimizer_s": profile.seconds(layer.optimizer),
    }
    for name, program in (("forward", layer.forward_program), ("backward", layer.backward_program)):
        if program:
            document[f"{name}_as_one"] = to_document(profile.cost(program))
    return document


def _seconds(cost: Cost) -> str:
    if not cost.is_known:
        return "?"
    return f"{format_duration(cost.seconds)}{' est.' if cost.note else ''}"


def _estimated(cost: Cost) -> str:
    return f"; estimated to within {cost.relative_error:.0%}" if cost.is_known else ""


def _rate(group: OperatorGroup, cost: Cost) -> str:
    if not cost.is_known:
        return ""
    if group.flops:
        return f"{group.flops / cost.seconds / 1e9:.3g} GFLOP/s"
    return f"{group.bytes_moved / cost.seconds / 1e9:.3g} GB/s"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    wide = ("shapes", "model", "layer", "stage", "operator", "hardware")
    for name in columns:
        if name in wide:
            table.add_column(name, overflow="fold", min_width=_MIN_WIDTH)
        else:
            table.add_column(name, no_wrap=True, justify="right")
    return table
