"""A log file that others write to."""

from collections.abc import Iterator
from pathlib import Path

from headway.cli.log_line import LogLine, parse_line


class LogFile:
    """Follows one log file, and reads its lines as they are completed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._last_time = ""

    def new_lines(self) -> Iterator[LogLine]:
        """Returns complete lines that were not read before; starts again where the file was replaced."""
        if self._path.stat().st_size < self._offset:
            self._offset = 0
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return
                self._offset += len(raw)
                text = raw.decode(errors="replace").rstrip("\n")
                line = parse_line(text, service=self._path.stem, after=self._last_time)
                self._last_time = line.time
                yield line


class LogDirectory:
    """Follows all log files of a stack, those that appear later too.

    Args:
        names: processes whose logs are read; empty reads all.
    """

    def __init__(self, directory: Path, *, names: tuple[str, ...]) -> None:
        self._directory = directory
        self._names = names
        self._files: dict[Path, LogFile] = {}

    @property
    def available(self) -> list[str]:
        """Names of the processes that have a log."""
        return sorted(path.stem for path in self._directory.glob("*.log"))

    def new_lines(self) -> Iterator[LogLine]:
        """Returns the new lines file by file; they are not ordered by time between files."""
        for name in self.available:
            if not self._names or name in self._names:
                path = self._directory / f"{name}.log"
                yield from self._files.setdefault(path, LogFile(path)).new_lines()
