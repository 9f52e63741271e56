"""Figures: drawn without a display, written as PNG beside the documentation."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

FIGURES_DIR = Path("docs/figures")


def panels(*titles: str, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A row of axes, one for each title."""
    figure = Figure(figsize=(4.8 * len(titles), height), layout="constrained")
    axes = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for each, title in zip(axes, titles, strict=True):
        each.set_title(title, fontsize=10)
        each.grid(visible=True, alpha=0.3)
    return figure, axes


def save(figure: Figure, name: str, *, directory: Path = FIGURES_DIR) -> Path:
    """Writes `NAME.png` and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.png"
    figure.savefig(path, dpi=110)
    return path
