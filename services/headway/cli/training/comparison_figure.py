"""A comparison of training plans as a picture: a panel for each model and cluster, a bar for each method."""

from pathlib import Path

from headway.cli.figure_file import write_figure
from headway.cli.training.comparison import Comparison
from headway.core.units import format_duration

_BEST, _OTHER = "#55a868", "#4c72b0"


def draw_comparison(comparison: Comparison, path: Path) -> None:
    """Draws examples a second, so that longer bars are better; the best is of another colour."""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((cell.model, cell.cluster) for cell in comparison.cells))
    most = max(sum((cell.model, cell.cluster) == panel for cell in comparison.cells) for panel in panels)
    figure = Figure(figsize=(8, (0.8 + 0.35 * most) * len(panels)), layout="constrained")
    for axes, panel in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        cells = [cell for cell in comparison.cells if (cell.model, cell.cluster) == panel]
        for place, cell in enumerate(cells):
            if cell.plan is None:
                axes.text(0, place, " no plan", va="center", fontsize=8)
                continue
            is_best = cell.plan.iteration_s == comparison.best_s(cell)
            axes.barh(place, cell.plan.throughput, color=_BEST if is_best else _OTHER)
            label = f" {format_duration(cell.plan.iteration_s)}"
            axes.text(cell.plan.throughput, place, label, va="center", fontsize=8)
        axes.set_yticks(range(len(cells)), [cell.method for cell in cells], fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_title(f"{panel[0]} on {panel[1]}", fontsize=10)
        axes.set_xlabel("examples/s")
    write_figure(figure, path, title="Training plans compared")
