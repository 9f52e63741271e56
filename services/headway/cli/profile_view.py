"""Imported profiles as tables."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from headway.core.profile_summary import ProfileSummary
from headway.core.slice_latency import ContextFit
from headway.core.slice_profile import SliceProfile
from headway.core.stage_profile import StageProfile
from headway.core.units import format_bytes, format_duration


def summary_table(summaries: Sequence[ProfileSummary]) -> Table:
    table = _table("profile", "of", "model", "hardware", "pp x op", "points", "error", "origin")
    for summary in summaries:
        table.add_row(
            summary.profile_id,
            summary.kind,
            summary.model,
            summary.hardware,
            f"{summary.pp} x {summary.op}",
            str(summary.num_points),
            _percent(summary.relative_error) if summary.relative_error else "",
            summary.provenance,
        )
    return table


def imported_view(profile: StageProfile | SliceProfile) -> RenderableType:
    """Tables every stage of an imported profile; of a table of slices, its size and the fitted context term."""
    table = _stages(profile) if isinstance(profile, StageProfile) else _fits(profile)
    return Group(table, f"{profile.provenance} from: {profile.source}")


def _stages(profile: StageProfile) -> Table:
    table = _table("batch", "stage", "layers", "latency", "weights", "activations")
    layers = profile.layers_per_stage or ("",) * profile.pp
    for batch in profile.batches:
        for stage in range(profile.pp):
            table.add_row(
                str(batch.batch_size),
                str(stage),
                str(layers[stage]),
                format_duration(batch.stage_latency_s[stage]),
                format_bytes(profile.weight_bytes[stage]),
                format_bytes(batch.activation_bytes[stage]),
            )
    return table


def _fits(profile: SliceProfile) -> Table:
    table = _table("pass", "a0", "a1", "a2", "a3", "fitted to", "held out", "error", "largest error")
    for name, fit in (("forward", profile.forward), ("backward", profile.backward)):
        if fit is not None:
            table.add_row(name, *_coefficients(fit))
    return table


def _coefficients(fit: ContextFit) -> list[str]:
    coefficients = [f"{value:.3g} s" for value in (fit.a0, fit.a1, fit.a2, fit.a3)]
    errors = [_percent(fit.relative_error), _percent(fit.max_relative_error)]
    return [*coefficients, str(fit.num_fitted), str(fit.num_held_out), *errors]


def _percent(relative_error: float) -> str:
    return f"{100 * relative_error:.2g} %"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=name != "model", overflow="fold")
    return table
