"""Reads columns of a CSV file, plain or gzip; errors name file and line."""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import BinaryIO, NoReturn, TextIO, TypeVar, cast

from headway.core.errors import InvalidArgumentError

_CHUNK_LINES = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_BYTES = 512 * 1024 * 1024

T = TypeVar("T")


class CsvTable:
    """A CSV file with a header. `chunks` can be iterated over once."""

    def __init__(self, content: bytes, *, file: str, columns: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Reads the header; InvalidArgumentError where it lacks one of `columns`. Columns of other names are not
        read."""
        self.file = file
        self._reader = csv.reader(_text(content))
        header = [name.strip() for name in next(self._rows(), [])]
        for name in columns:
            if name not in header:
                self.fail(1, f"has no column '{name}'", hint=f"The first line should be {','.join(columns)}.")
        self.header = tuple(header)
        self._wanted = [name for name in (*columns, *optional) if name in header]

    def chunks(self) -> Iterator["Chunk"]:
        """Yields some ten thousand lines at a time; none is empty. Empty lines are passed over."""
        rows = self._rows()
        next_line = self._reader.line_num + 1
        places = [self.header.index(name) for name in self._wanted]
        while block := list(islice(rows, _CHUNK_LINES)):
            lines = [number for number, row in enumerate(block, next_line) if row]
            next_line += len(block)
            filled = [row for row in block if row]
            for line, row in zip(lines, filled, strict=True):
                if len(row) != len(self.header):
                    self.fail(line, f"has {len(row)} fields, and the header {len(self.header)}")
            if filled:
                columns = ([row[place] for row in filled] for place in places)
                yield Chunk(self, lines, dict(zip(self._wanted, columns, strict=True)))

    def fail(self, line: int, problem: str, *, hint: str = "Correct the line.") -> NoReturn:
        """Makes an error whose message goes on from the line with `problem`: 'has no model'."""
        raise InvalidArgumentError(f"{self.file}, line {line} {problem}.", hint=hint, field=self.file)

    def _rows(self) -> Iterator[list[str]]:
        try:
            yield from self._reader
        except (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
            raise InvalidArgumentError(
                f"{self.file}, after line {self._reader.line_num}: no valid CSV: {error}.",
                hint="A trace is text, or text compressed by gzip.",
                field=self.file,
            ) from error


class Chunk:
    """Some lines of a file, by column.

    Attributes:
        lines: numbers of the lines in the file, from 1 on.
    """

    def __init__(self, table: CsvTable, lines: list[int], fields: dict[str, list[str]]) -> None:
        self.table = table
        self.lines = lines
        self._fields = fields

    def texts(self, name: str) -> list[str]:
        return self._fields[name]

    def has(self, name: str) -> bool:
        return name in self._fields

    def numbers(
        self, name: str, *, least: float = -math.inf, most: float = math.inf, default: float | None = None
    ) -> list[float]:
        """Reads a column of numbers from `least` to `most`; an empty field is `default`."""

        def read(text: str) -> float:
            if default is not None and not text.strip():
                return default
            number = float(text)
            if not least <= number <= most:
                raise ValueError
            return number

        what = "a number" + (f" from {least:g}" if math.isfinite(least) else "")
        what += f" to {most:g}" if math.isfinite(most) else ""
        return self.convert(name, read, fault=lambda text: f"has {name} '{text}', which should be {what}")

    def convert(self, name: str, read: Callable[[str], T], *, fault: Callable[[str], str], hint: str = "") -> list[T]:
        """Applies `read` to each field; where it raises ValueError or KeyError, `fault` says what is wrong with the
        text."""
        texts = self._fields[name]
        try:
            return [read(text) for text in texts]
        except (ValueError, KeyError):
            for line, text in zip(self.lines, texts, strict=True):
                try:
                    read(text)
                except (ValueError, KeyError):
                    self.table.fail(line, fault(text), hint=hint or "Correct the line.")
            raise


class _Unzipped(io.BufferedIOBase):
    """The content of a gzip file; a few KiB can hold gigabytes, so OSError says where it goes on for too long."""

    def __init__(self, content: bytes) -> None:
        self._file = gzip.GzipFile(fileobj=io.BytesIO(content))
        self._num_bytes = 0

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1, /) -> bytes:
        found = self._file.read1(size)
        self._num_bytes += len(found)
        if self._num_bytes > _MAX_BYTES:
            raise OSError(f"it holds more than {_MAX_BYTES // 1024**2} MiB")
        return found


def _text(content: bytes) -> TextIO:
    binary = _Unzipped(content) if content.startswith(_GZIP_MAGIC) else io.BytesIO(content)
    return io.TextIOWrapper(cast("BinaryIO", binary), encoding="utf-8-sig")
