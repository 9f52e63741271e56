"""A table that is whole in a narrow terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2


@dataclass(frozen=True, slots=True)
class WideTable:
    """A table that is split into as many tables below each other as the console's width asks for. Nothing is cut: what
    is too wide even for a table of its own is folded.

    Attributes:
        columns: headers, and how their cells are justified.
        rows: a cell for each column.
        num_names: leading columns that name the row; each of the tables has them.
    """

    columns: Sequence[tuple[str, JustifyMethod]]
    rows: Sequence[Sequence[str | Text]]
    num_names: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for columns in self._tables(options.max_width):
            table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False, collapse_padding=True)
            for column in columns:
                name, justify = self.columns[column]
                table.add_column(name, justify=justify, overflow="fold")
            for row in self.rows:
                table.add_row(*(row[column] for column in columns))
            yield table

    def _tables(self, max_width: int) -> list[list[int]]:
        """Splits the columns over tables that fit the width."""
        widths = [
            _GAP + max(cell_len(str(text)) for text in (name, *(row[column] for row in self.rows)))
            for column, (name, _) in enumerate(self.columns)
        ]
        names = list(range(self.num_names))
        tables = [[*names]]
        for column in range(self.num_names, len(self.columns)):
            if tables[-1] != names and sum(widths[each] for each in (*tables[-1], column)) > max_width:
                tables.append([*names])
            tables[-1].append(column)
        return tables
