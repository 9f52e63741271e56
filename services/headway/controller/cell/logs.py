"""The workers' logs on the cell's own output, where the cluster collects them."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

_EVERY_S = 0.2


class LogCopy:
    """Copies lines that are added to files, whole lines only, so that those of several workers do not mix."""

    def __init__(self, paths: Sequence[Path], *, output: TextIO = sys.stdout) -> None:
        self._places = dict.fromkeys(paths, 0)
        self._output = output

    async def copy_forever(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            self.copy()

    def copy(self) -> None:
        """Copies what is there now. A file that became shorter was begun anew."""
        for path, place in self._places.items():
            size = path.stat().st_size if path.exists() else 0
            if size == place:
                continue
            with path.open("rb") as file:
                file.seek(place if size > place else 0)
                lines, newline, _ = file.read().rpartition(b"\n")
            begun_at = place if size > place else 0
            self._places[path] = begun_at + len(lines) + len(newline)
            self._output.write((lines + newline).decode(errors="replace"))
        self._output.flush()
