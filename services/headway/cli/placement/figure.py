"""A curve of attainment, as a figure: PNG, SVG or PDF by matplotlib, HTML with an SVG inside."""

import io
from html import escape
from pathlib import Path

from headway.cli.placement.frontier_view import WORDS
from headway.core.errors import InvalidArgumentError
from headway.core.frontier import Frontier, Question

_ENDINGS = (".png", ".svg", ".pdf", ".html")


def check_figure_path(path: Path) -> None:
    """Raises InvalidArgumentError where no figure can be written to `path`; called before a long search."""
    if path.suffix not in _ENDINGS:
        raise InvalidArgumentError(f"{path} ends with none of {', '.join(_ENDINGS)}.", hint="Write --figure curve.svg.")
    if not path.parent.is_dir():
        raise InvalidArgumentError(f"There is no directory {path.parent}.", hint="Make it, or name another --figure.")


def draw(frontier: Frontier, path: Path) -> None:
    """Draws attainment over the value that was varied, for the search and for selective replication."""
    if path.suffix == ".html":
        name = escape(WORDS[frontier.question][0])
        svg = _render(frontier, "svg").decode()
        picture = svg[svg.index("<svg") :]
        path.write_text(f"<!doctype html>\n<meta charset='utf-8'>\n<title>{name}</title>\n{picture}")
    else:
        path.write_bytes(_render(frontier, path.suffix.removeprefix(".")))


def _render(frontier: Frontier, file_format: str) -> bytes:
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
    content = io.BytesIO()
    figure.savefig(content, format=file_format, dpi=150)
    return content.getvalue()
