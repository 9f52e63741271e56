"""Reads along what this process and its children print, to find in it why one of them died."""

import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_LINES = 1000
_LAST_LINES_S = 2.0
_ERROR = re.compile(r"\b(?P<kind>\w*(?:Error|Exception)): (?P<words>\S.*)$")
_CONSEQUENCES = ("Engine core initialization failed", "WorkerProc initialization failed")


class Echo:
    """The lines printed since `listening` began. Children that inherit the outputs are heard until they end."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._reader: threading.Thread | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Passes everything on to where it went before, too."""
        reading, writing = os.pipe()
        outputs = {number: os.dup(number) for number in (1, 2)}
        self._reader = threading.Thread(target=self._read, args=(reading, os.dup(2)), name="echo", daemon=True)
        self._reader.start()
        for number in outputs:
            os.dup2(writing, number)
        os.close(writing)
        try:
            yield
        finally:
            for number, output in outputs.items():
                os.dup2(output, number)
                os.close(output)

    def cause(self) -> str:
        """The last error of a process that has ended, in its own words; empty where none was printed."""
        if self._reader is not None:
            self._reader.join(_LAST_LINES_S)
        found = (_ERROR.search(line) for line in reversed(self._lines))
        return next((match["words"] for match in found if match and not match["words"].startswith(_CONSEQUENCES)), "")

    def _read(self, reading: int, output: int) -> None:
        with os.fdopen(reading, "rb") as lines, os.fdopen(output, "wb", buffering=0) as onward:
            for line in lines:
                onward.write(line)
                self._lines.append(line.decode(errors="replace").rstrip())
