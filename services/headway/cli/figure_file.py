"""Figures in files: PNG, SVG or PDF by matplotlib, HTML with an SVG inside."""

import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from headway.core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (".png", ".svg", ".pdf", ".html")


def check_figure_path(path: Path) -> None:
    """Raises InvalidArgumentError where no figure can be written to `path`; called before a long search."""
    if path.suffix not in _ENDINGS:
        raise InvalidArgumentError(
            f"{path} ends with none of {', '.join(_ENDINGS)}.", hint="Write --figure figure.svg.", field="figure"
        )
    if not path.parent.is_dir():
        raise InvalidArgumentError(
            f"There is no directory {path.parent}.", hint="Make it, or name another --figure.", field="figure"
        )


def write_figure(figure: "Figure", path: Path, *, title: str) -> None:
    """Writes a figure in the format that the name ends with."""
    if path.suffix == ".html":
        svg = _render(figure, "svg").decode()
        picture = svg[svg.index("<svg") :]
        path.write_text(f"<!doctype html>\n<meta charset='utf-8'>\n<title>{escape(title)}</title>\n{picture}")
    else:
        path.write_bytes(_render(figure, path.suffix.removeprefix(".")))


def _render(figure: "Figure", file_format: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=file_format, dpi=150)
    return content.getvalue()
