"""Log lines are written by a thread of their own: who logs does not wait for the disk, an event loop least of all."""

import logging
import os
import threading
from contextlib import suppress
from typing import TextIO

_MAX_WAITING = 10_000
_FLUSH_TIMEOUT_S = 5.0


class LogThread(logging.Handler):
    """Writes to an output what is logged, in its order; together what came during the last write.

    While too many lines wait, further ones are left out, and how many is told. A critical one, behind which a process
    may end itself, is written before the call returns, and so is all at the end, as far as the disk takes it within
    seconds. A process that is forked has no such thread, and writes by itself.
    """

    def __init__(self, output: TextIO, *, max_waiting: int = _MAX_WAITING) -> None:
        super().__init__()
        self._output = output
        self._max_waiting = max_waiting
        self._begin(is_threaded=True)
        os.register_at_fork(after_in_child=lambda: self._begin(is_threaded=False))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as all handlers do: who logs does not fail of it
            self.handleError(record)
            return
        with self._changed:
            if not self._is_threaded:
                self._write(line)
            elif len(self._lines) < self._max_waiting:
                self._lines.append(line)
                self._changed.notify_all()
            else:
                self._num_left_out += 1
        if record.levelno >= logging.CRITICAL:
            self.flush()

    def flush(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not (self._lines or self._is_writing), timeout=_FLUSH_TIMEOUT_S)

    def close(self) -> None:
        """What waits is still written; what is logged later is written by who logs it."""
        with self._changed:
            self._is_threaded = False
            self._changed.notify_all()
        super().close()

    def _begin(self, *, is_threaded: bool) -> None:
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._num_left_out = 0
        self._is_writing = False
        self._is_threaded = is_threaded
        if is_threaded:
            threading.Thread(target=self._work, name="log", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or not self._is_threaded)
                lines, num_left_out = self._lines, self._num_left_out
                if not lines:
                    return
                self._lines, self._num_left_out, self._is_writing = [], 0, True
            if num_left_out:
                lines.append(self._tell_left_out(num_left_out))
            self._write("\n".join(lines))
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the disk is full, or the output was closed at the end
            self._output.write(text + "\n")
            self._output.flush()

    def _tell_left_out(self, num_lines: int) -> str:
        words = "%d lines are left out here: those before took too long to be written"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, words, (num_lines,), None)
        self.filter(record)
        return self.format(record)
