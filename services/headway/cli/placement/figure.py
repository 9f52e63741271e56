"""A curve of attainment, as a figure."""

from pathlib import Path

from headway.cli.figure_file import write_figure
from headway.cli.placement.frontier_view import WORDS
from headway.core.frontier import Frontier, Question


def draw(frontier: Frontier, path: Path) -> None:
    """Draws attainment over the value that was varied, for the search and for selective replication."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    values = [point.value for point in frontier.points]
    axes.plot(values, [100 * point.attainment for point in frontier.points], "o-", label="placement search")
    axes.plot(values, [100 * point.replication for point in frontier.points], "s--", label="selective replication")
    axes.axhline(100 * frontier.target, color="grey", linewidth=0.8)
    if frontier.best is not None:
        axes.axvline(frontier.best, color="grey", linewidth=0.8, linestyle=":")
    if frontier.question is not Question.DEVICES:
        axes.set_xscale("log")
    axes.set_xlabel(WORDS[frontier.question][1])
    axes.set_ylabel("SLO attainment, held out (%)")
    axes.legend()
    write_figure(figure, path, title=WORDS[frontier.question][0])
