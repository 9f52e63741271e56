"""Draws the rows as the thesis' figures 2.7, 2.9 and 2.11."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.backends.row import CHOICE, Row
from benchmarks.figure import panels, save


def draw(rows: Sequence[Row]) -> Path:
    """Speed-ups over torch: of each backend and of the choice, and of the choice, backend by backend; search times."""
    figure, (speed, ablation, search) = panels("times as fast as torch", "... with one backend more", "search (s)")
    labels = [f"{row.network}, {row.num_threads}" for row in rows]
    names = [name for name in dict.fromkeys(name for row in rows for name in row.contest) if name != "eager"]
    bars(speed, [[row.gain_over_eager(name) for name in names] for row in rows], labels, names)
    added = list(dict.fromkeys(name for row in rows for name in row.ablation))
    bars(ablation, [[_ablated(row, name) for name in added] for row in rows], labels, [f"+ {name}" for name in added])
    bars(search, [[row.search_s] for row in rows], labels, ["warm"])
    search.axhline(5.0, color="grey", linestyle="--")
    return save(figure, "backends")


def _ablated(row: Row, name: str) -> float:
    return row.ablation["eager"] / row.ablation[name] if name in row.ablation else 0.0


def bars(axes: Axes, heights: Sequence[Sequence[float]], labels: Sequence[str], names: Sequence[str]) -> None:
    """A group of bars for each label."""
    width = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        places = [at + number * width for at in range(len(labels))]
        edge = "black" if name == CHOICE else "none"
        axes.bar(places, [row[number] for row in heights], width, label=name, edgecolor=edge)
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axes.legend(fontsize=6)
